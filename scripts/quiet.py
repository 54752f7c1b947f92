"""Simulations log what their faults do: that is for who asks for it, and nobody's affair afterwards."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = ("spanstore", "f1common", "f1server", "slavepool", "master")


@contextmanager
def quiet(verbose: bool = False) -> Iterator[None]:
    """Within, our own packages log from INFO on if ``verbose``, or nothing."""
    before = {name: logging.getLogger(name).level for name in _NAMES}
    try:
        for name in _NAMES:
            logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
