"""Where DuckDB moves what does not fit in memory: a folder for each process, removed once the process is gone."""

import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"f1-spill-(\d+)")


def spill_folder() -> str:
    """Return this process's folder, which DuckDB makes when it needs it; those of processes that died are removed."""
    root = Path(tempfile.gettempdir())
    for folder in root.glob("f1-spill-*"):
        found = _NAME.fullmatch(folder.name)
        if found and not _is_alive(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)
    return str(root / f"f1-spill-{os.getpid()}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True
