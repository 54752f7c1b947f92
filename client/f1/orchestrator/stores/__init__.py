"""Stores: where the orchestrator keeps its cells. Each passes tests/contract/stores."""
