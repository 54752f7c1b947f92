"""Free ports for a peer that is started beside us."""

import socket
from collections.abc import Callable


def free_ports() -> Callable[[], int]:
    """Return a function that gives a free port of this machine, none twice."""
    given: set[int] = set()

    def free_port() -> int:
        while True:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in given:
                given.add(port)
                return port

    return free_port
