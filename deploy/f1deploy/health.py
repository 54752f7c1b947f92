"""Asking the processes of a cluster how they are, all at once.

Are they serving, has every group a leader, and which slaves do the f1servers know?
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from f1common.pb import f1_pb2, f1_pb2_grpc, spanstore_pb2, spanstore_pb2_grpc
from f1common.rpc.channels import channel_options

CALL_TIMEOUT_S = 1.0


class Prober:
    """Keeps a channel to each address while it is in use."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._stack = ExitStack()
        self._channels: dict[str, Any] = {
            address: self._stack.enter_context(grpc.insecure_channel(address, options=channel_options()))
            for address in addresses
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def serving(self) -> dict[str, bool]:
        """Tell of each address whether its health is SERVING."""
        request = health_pb2.HealthCheckRequest()
        calls = {
            address: health_pb2_grpc.HealthStub(channel).Check.future(request, timeout=CALL_TIMEOUT_S)
            for address, channel in self._channels.items()
        }
        replies = _gather(calls)
        serving = health_pb2.HealthCheckResponse.SERVING
        return {address: address in replies and replies[address].status == serving for address in calls}

    def leaders(self) -> dict[int, str]:
        """Return the groups that have a leader with a valid lease, and that leader's name."""
        request = spanstore_pb2.StatusRequest()
        calls = {
            address: spanstore_pb2_grpc.SpanServerStub(channel).Status.future(request, timeout=CALL_TIMEOUT_S)
            for address, channel in self._channels.items()
        }
        found: dict[int, str] = {}
        for reply in _gather(calls).values():
            found.update({g.group: reply.name for g in reply.groups if g.role == "leader" and g.lease_valid})
        return found

    def live_slaves(self, f1servers: Iterable[str]) -> dict[str, set[str]]:
        """Return for each of these addresses the names of the slaves that are live for that f1server."""
        request = f1_pb2.StatusRequest()
        calls = {
            address: f1_pb2_grpc.F1ServerStub(self._channels[address]).Status.future(request, timeout=CALL_TIMEOUT_S)
            for address in f1servers
        }
        replies = _gather(calls)
        return {
            address: {slave.name for slave in replies[address].pool.slaves if slave.state == "live"}
            if address in replies
            else set()
            for address in calls
        }


def _gather(calls: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replies of the calls that succeed."""
    replies = {}
    for address, call in calls.items():
        try:
            replies[address] = call.result()
        except (grpc.RpcError, grpc.FutureCancelledError):
            continue
    return replies
