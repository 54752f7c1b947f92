"""The library that users import: connections, transactions and the command line of F1."""
