"""Which streams go directly: nearly all messages of a cluster. All others go over gRPC only."""

STORAGE_METHODS = ("/f1.span.SpanServer/Session", "/f1.span.SpanServer/Peer")
"""Requests to the storage tier, and what its replicas say to each other."""

CLIENT_METHODS = ("/f1.db.F1Server/Session",)
"""What clients ask f1servers."""
