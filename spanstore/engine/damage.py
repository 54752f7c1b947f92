"""What is known to be damaged on a disk, kept beside the data: it must survive a restart and not depend on them.

A *mark* names a group whose replica is not to be loaded until it has been rebuilt, or :data:`WHOLE_SERVER` when the
pages themselves are damaged, which any group may lie in.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine.keyspace import SERVER

WHOLE_SERVER = SERVER
"""In place of a group's number: all replicas of this data directory."""

DAMAGE_FILE = "DAMAGED"


class DamageMarks(Protocol):
    """The marks of one disk."""

    def all(self) -> Mapping[int, str]:
        """Return the reason for each group that is marked."""
        ...

    def mark(self, group: int, reason: str) -> None:
        """Mark a group durably; the first reason stays. Raises F1Error UNAVAILABLE if it cannot be kept."""
        ...

    def clear(self, group: int) -> None:
        """Take a mark away: the replica was rebuilt. Raises F1Error UNAVAILABLE."""
        ...


class MemoryMarks:
    """Marks of a simulated disk."""

    def __init__(self) -> None:
        self._marks: dict[int, str] = {}

    def all(self) -> Mapping[int, str]:
        """Return the reason for each group that is marked."""
        return dict(self._marks)

    def mark(self, group: int, reason: str) -> None:
        """Mark a group; the first reason stays."""
        if group not in self._marks:
            self._marks[group] = reason
            self._changed()

    def clear(self, group: int) -> None:
        """Take a mark away."""
        if self._marks.pop(group, None) is not None:
            self._changed()

    def _changed(self) -> None:
        """Keep the marks: here, memory is the disk."""


class FileMarks(MemoryMarks):
    """Marks in the file ``DAMAGED`` of a data directory."""

    def __init__(self, directory: Path) -> None:
        """Read what is marked. Raises F1Error BAD_DATA_DIR if the file cannot be read."""
        super().__init__()
        self._path = directory / DAMAGE_FILE
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
            self._marks = {int(group): reason for group, reason in found.items()}
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError, ValueError) as error:
            raise F1Error(
                Code.BAD_DATA_DIR,
                f"{self._path} says that data are damaged, but cannot be read: {error}; discard this data directory "
                "and let its replicas be rebuilt",
            ) from error

    def _changed(self) -> None:
        scratch = self._path.with_name(f"{DAMAGE_FILE}.new")
        try:
            with scratch.open("wb") as stream:
                stream.write(msgspec.json.encode({str(group): reason for group, reason in self._marks.items()}))
                stream.flush()
                os.fsync(stream.fileno())
            scratch.replace(self._path)
            fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise F1Error(Code.UNAVAILABLE, f"cannot note in {self._path} what is damaged: {error}") from error
