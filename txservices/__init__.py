"""The services of the transaction orchestrator as processes: timestamps, and locks."""
