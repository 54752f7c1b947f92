"""Transactions of the storage tier."""
