"""The ordered key-value store under a spanserver: its protocol and its implementations."""
