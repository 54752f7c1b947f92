"""Sample data: the AdWords schema of the F1 paper, with a generator."""
