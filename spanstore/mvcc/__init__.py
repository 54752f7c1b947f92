"""Versions, timestamps, safe time and garbage, as pure functions over an engine."""
