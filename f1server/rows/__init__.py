"""Rows: their keys and values, and what a write of one entails for all that depends on it."""
