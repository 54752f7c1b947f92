"""Statements from people: how results and errors look, and the interactive shell."""
