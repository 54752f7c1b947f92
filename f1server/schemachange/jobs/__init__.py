"""What is wanted, durably: jobs, who owns them, and what is told of how far they are."""
