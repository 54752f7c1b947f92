"""Starts a local cluster of processes and keeps it running."""
