"""Short notation for histories."""

from types import SimpleNamespace

import pytest

from spanstore.testing.history import Op, Read, Status, Write


def op(process, invoke, ret, *steps, status=Status.OK, ts=None, kind="t"):
    """An operation from ``invoke`` to ``ret``."""
    return Op(process=process, kind=kind, invoke_us=invoke, return_us=ret, status=status, steps=steps, ts=ts)


@pytest.fixture
def h():
    """Makers of operations and steps."""
    return SimpleNamespace(op=op, r=Read, w=Write, FAIL=Status.FAIL, UNKNOWN=Status.UNKNOWN)
