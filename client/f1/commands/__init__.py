"""The subcommands of ``f1`` that are clients: each is an entry point of the group ``f1.commands``."""
