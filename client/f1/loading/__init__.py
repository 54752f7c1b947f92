"""Loading files: reading them as rows of a table's types, and committing these in many small transactions."""
