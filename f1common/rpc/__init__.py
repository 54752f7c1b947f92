"""Calls between processes: batched streams, channels, deadlines, back-off, errors on the wire, server bootstrap."""
