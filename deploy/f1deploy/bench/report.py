"""What benchmarks of the database print: the form of one figure, and how it is asked for."""

from enum import Enum

import msgspec

__all__ = ["Format", "Row"]


class Format(Enum):
    """How results are printed."""

    table = "table"
    json = "json"


class Row(msgspec.Struct, frozen=True):
    """One figure. ``peer`` is what it is compared with, ``ratio`` as each benchmark says.

    ``clients`` 0 stands for an open loop; ``cpu_us`` is the processor time of all servers for one row or operation.
    """

    work: str
    clients: int
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str | None = None
    ratio: float | None = None
    cpu_us: float | None = None
