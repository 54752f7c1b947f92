"""Tests of streams that run over each of their transports."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from tests.unit.rpc import direct, echo


@pytest.fixture(params=[echo.GRPC, echo.DIRECT])
def transports(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once with each transport below the echo service."""
    before, echo.transport = echo.transport, request.param
    yield echo.transport
    echo.transport = before


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test on asyncio's event loop and on that of our servers, whose transports are not quite the same."""
    direct.RUN.append(request.param)
    yield
    direct.RUN.pop()
