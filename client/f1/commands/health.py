"""``f1 health``: does one server of any kind take work? For health checks of containers and load balancers."""

import os
from typing import Annotated, Any

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from f1.servers import parse_hosts
from f1common.errors import Code, F1Error
from f1common.rpc.channels import channel_options

PARTS = ("data", "disk", "clock")
"""What a spanserver tells of besides; other servers have no such parts."""

HOST_VARIABLE, PORT_VARIABLE = "F1_SERVER_HOST", "F1_SERVER_PORT"


def command(
    address: Annotated[
        str,
        typer.Argument(
            metavar="HOST:PORT",
            help=f"A server of any kind. Without it: where this container's server listens (${HOST_VARIABLE}, "
            f"${PORT_VARIABLE}).",
        ),
    ] = "",
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="How long to wait, in seconds.")] = 3.0,
) -> None:
    """Ask a server for its health (grpc.health.v1); exit code 0 only if it is SERVING."""
    where = one_address(address or from_environment())
    status = asked(where, timeout_s)
    if status != health_pb2.HealthCheckResponse.SERVING:
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
        raise F1Error(Code.UNAVAILABLE, f"{where} is {name}: it starts or drains; its log says which")
    typer.echo(f"{where} is SERVING")
    for part in PARTS:
        if asked(where, timeout_s, part) == health_pb2.HealthCheckResponse.NOT_SERVING:
            typer.echo(f"but its {part} is not well: `f1 status` says what is wrong")


def from_environment() -> str:
    """Return the address that the variables of this container name. Raises F1Error INVALID_ARGUMENT."""
    host, port = os.environ.get(HOST_VARIABLE), os.environ.get(PORT_VARIABLE)
    if not host or not port:
        text = f"which server? Write HOST:PORT, or set {HOST_VARIABLE} and {PORT_VARIABLE}"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    return f"{host}:{port}"


def one_address(text: str) -> str:
    """Return ``text`` if it is the address of one server. Raises F1Error INVALID_ARGUMENT."""
    found = parse_hosts(text)
    if len(found) != 1:
        raise F1Error(Code.INVALID_ARGUMENT, f"health is asked of one server at a time, not of {len(found)}")
    return found[0]


def asked(address: str, timeout_s: float, part: str = "") -> "health_pb2.HealthCheckResponse.ServingStatus.ValueType":
    """Return the health that the server at ``address`` tells, of itself or a part. Raises F1Error UNAVAILABLE.

    A part that the server does not have is SERVICE_UNKNOWN.
    """
    with grpc.insecure_channel(address, options=channel_options()) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest(service=part), timeout=timeout_s).status
        except grpc.RpcError as error:
            if part and getattr(error, "code", str)() is grpc.StatusCode.NOT_FOUND:
                return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            details: Any = getattr(error, "details", str)  # the error is a call, too, which the stubs do not say
            raise F1Error(Code.UNAVAILABLE, f"{address} does not tell its health: {details()}") from error
