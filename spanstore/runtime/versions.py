"""Which version of the protocol each spanserver speaks: by its own messages, or by its row as long as it is silent."""

from collections.abc import Callable


class PeerVersions:
    """What one server knows of the versions of all."""

    def __init__(self, me: str, mine: int) -> None:
        """``mine`` is the version that the server ``me`` speaks."""
        self._heard = {me: mine}
        self._me = me
        self.stored: Callable[[str], int] = lambda server: 0
        """Returns the version in the row of a server, 0 without one."""

    @property
    def mine(self) -> int:
        """The version that this server speaks."""
        return self._heard[self._me]

    def heard(self, server: str, version: int) -> None:
        """Take in what a server says of itself."""
        if server != self._me:
            self._heard[server] = version

    def of(self, server: str) -> int:
        """Return the version that ``server`` speaks, 0 while it is not known."""
        return self._heard.get(server) or self.stored(server)
