"""Slaves: processes that run parts of distributed queries (F1 section 8.2) and tell the master that they live."""
