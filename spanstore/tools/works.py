"""What a benchmark does to a store, whichever store that is."""

import random
from typing import Literal, Protocol

Work = Literal["transfer, one group", "transfer, two groups", "write one row", "read one row"]

WORKS: tuple[Work, ...] = ("transfer, one group", "transfer, two groups", "write one row", "read one row")
UNITS: dict[Work, str] = {
    "transfer, one group": "tx/s",
    "transfer, two groups": "tx/s",
    "write one row": "writes/s",
    "read one row": "reads/s",
}

ACCOUNTS = 1_000
"""Bank accounts in each group; both accounts of a transfer are drawn evenly."""

ROWS = 10_000
ROW_BYTES = 100
START_BALANCE = 1_000


class Store(Protocol):
    """What a benchmark does to a store. All of it may run in several processes at once but for prepare and clean."""

    async def prepare(self) -> None:
        """Write the accounts and rows that the works use."""
        ...

    async def perform(self, work: Work, rng: random.Random) -> None:
        """Do one operation. Raises F1Error."""
        ...

    async def total(self) -> int:
        """Return the sum of all accounts in one snapshot: no transfer changes it."""
        ...

    async def clean(self) -> None:
        """Remove what :meth:`prepare` and the works wrote."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    @property
    def expected_total(self) -> int:
        """What :meth:`total` has to return."""
        ...
