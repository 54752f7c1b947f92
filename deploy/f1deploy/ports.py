"""Free ports of this machine."""

import random
import socket
from collections.abc import Iterable

from f1common.errors import Code, F1Error

# Below the range from which Linux takes the local ports of outgoing connections, which could take ours at any time.
_LOWEST = 15_000
_HIGHEST = 32_000
_ATTEMPTS = 500


def is_free(host: str, port: int) -> bool:
    """Tell whether nobody listens on ``host`` and ``port``."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended server that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
    return True


def require_free(host: str, ports: Iterable[int]) -> None:
    """Raise F1Error PORT_IN_USE naming the first of ``ports`` that somebody listens on."""
    for port in ports:
        if not is_free(host, port):
            raise F1Error(
                Code.PORT_IN_USE,
                f"port {port} on {host} is in use by another process; stop it (`ss -ltnp 'sport = :{port}'` names it), "
                "or choose other ports with --port (0: any free ones)",
                details={"host": host, "port": str(port)},
            )


class FreePorts:
    """Gives out ports that nobody listens on, none twice. ``avoid`` are taken already."""

    def __init__(self, host: str, rng: random.Random, avoid: Iterable[int] = ()) -> None:
        self._host = host
        self._rng = rng
        self._given = set(avoid)

    def __call__(self) -> int:
        """Return a port. Raises F1Error UNAVAILABLE if none can be found."""
        for _ in range(_ATTEMPTS):
            port = self._rng.randrange(_LOWEST, _HIGHEST)
            if port not in self._given and is_free(self._host, port):
                self._given.add(port)
                return port
        raise F1Error(Code.UNAVAILABLE, f"no free port between {_LOWEST} and {_HIGHEST} on {self._host}")
