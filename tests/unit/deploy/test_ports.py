"""Free ports are free, and given out once."""

import random
import socket

import pytest

from f1common.errors import Code, F1Error
from f1deploy.ports import FreePorts, is_free, require_free

HOST = "127.0.0.1"


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(HOST, port)
        with pytest.raises(F1Error, match=f"port {port} .*--port") as raised:
            require_free(HOST, [port])
        assert raised.value.code is Code.PORT_IN_USE
    assert is_free(HOST, port)


def test_ports_are_given_once_and_none_to_avoid() -> None:
    first = FreePorts(HOST, random.Random(1))
    given = [first() for _ in range(50)]
    assert len(set(given)) == 50
    second = FreePorts(HOST, random.Random(1), avoid=given)
    assert not set(given) & {second() for _ in range(50)}


def test_it_says_so_when_no_port_is_left() -> None:
    with pytest.raises(F1Error, match="no free port"):
        FreePorts(HOST, random.Random(1), avoid=range(65_536))()
