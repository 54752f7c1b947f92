"""Tests of streams that run over each of their transports."""

from collections.abc import Iterator

import pytest

from tests.unit.rpc import echo


@pytest.fixture(params=[echo.GRPC, echo.DIRECT])
def transports(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once with each transport below the echo service."""
    before, echo.transport = echo.transport, request.param
    yield echo.transport
    echo.transport = before
