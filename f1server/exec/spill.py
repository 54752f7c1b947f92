"""Where DuckDB moves what does not fit in memory: a folder for each process, removed once the process is gone."""

from f1common.scratch import folder_of_process


def spill_folder() -> str:
    """Return this process's folder, which DuckDB makes when it needs it; those of processes that died are removed."""
    return str(folder_of_process("f1-spill"))
