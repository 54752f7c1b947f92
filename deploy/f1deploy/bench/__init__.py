"""Benchmarks of the database as its users see it: through client connections, over a cluster of processes."""
