"""Since when transactions are prepared here: whose decision is late, its coordinator is asked about."""

__all__ = ["PreparedSince"]


class PreparedSince:
    """Prepared transactions of one term. Times are those of the boot clock, in microseconds."""

    __slots__ = ("_patience_us", "_since")

    def __init__(self, patience_us: int) -> None:
        """A decision is late ``patience_us`` after the prepare."""
        self._patience_us = patience_us
        self._since: dict[bytes, int] = {}

    def begin(self, txn: bytes, boot_us: int) -> None:
        """``txn`` is prepared."""
        self._since[txn] = boot_us

    def end(self, txn: bytes) -> None:
        """``txn`` is decided; harmless if it is not known."""
        self._since.pop(txn, None)

    def late(self, boot_us: int) -> list[bytes]:
        """Return whose decision is late, sorted; each is returned again only after another delay."""
        late = sorted(txn for txn, since in self._since.items() if since <= boot_us - self._patience_us)
        self._since.update(dict.fromkeys(late, boot_us))
        return late
