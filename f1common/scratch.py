"""Folders below the machine's for temporary files that belong to one process, whose number is in their names.

A process that is killed leaves them behind; the next one that wants a folder of the kind removes those of processes
that are gone.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

__all__ = ["folder_of_process", "remove_left"]


def folder_of_process(kind: str) -> Path:
    """Return the folder ``KIND-PID`` of this process, which is made by whoever needs it. Removes what is left."""
    remove_left(kind)
    return Path(tempfile.gettempdir()) / f"{kind}-{os.getpid()}"


def remove_left(kind: str) -> None:
    """Remove the folders ``KIND-PID`` and ``KIND-PID-ANYTHING`` of processes that are gone."""
    name = re.compile(rf"{re.escape(kind)}-(\d+)(-.*)?")
    for folder in Path(tempfile.gettempdir()).glob(f"{kind}-*"):
        found = name.fullmatch(folder.name)
        if found and not _is_alive(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # somebody else's
    return True
