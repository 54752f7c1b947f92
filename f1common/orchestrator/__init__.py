"""What the services of the transaction orchestrator (patent 9619507) and their in-process twins have in common."""
