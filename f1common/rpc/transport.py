"""Which of gRPC's event loops our servers run on.

gRPC reads its experiments from the environment when it is loaded, so that whoever starts a server sets them: the
supervisor of a local cluster, the image. A library that is loaded into somebody else's process leaves them alone.
"""

import os
from collections.abc import Mapping

__all__ = ["EXPERIMENTS", "POLLED_BY_PYTHON", "with_transport"]

EXPERIMENTS = "GRPC_EXPERIMENTS"
"""The environment variable."""

POLLED_BY_PYTHON = "-event_engine_client,-event_engine_listener,-event_engine_callback_cq"
"""What arrives is read by the one thread that hands it to asyncio. With gRPC's own event engine, which is its default,
another pool of threads reads it first: three more context switches for a message that goes to and fro, and a fifth more
processor time for it (docs/performance.md)."""


def with_transport(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment for a server process; what the user has set stays."""
    return {EXPERIMENTS: POLLED_BY_PYTHON, **environment}
