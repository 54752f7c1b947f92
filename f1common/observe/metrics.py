"""Metrics of one server in the Prometheus format, on its own registry and endpoint.

The registry is a value, not the library's global one: a test or the simulator runs many servers in one process, and
two of them must not share a counter. Names carry their unit last (``_seconds``, ``_bytes``, ``_total``).
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server
from prometheus_client.exposition import generate_latest

from f1common.errors import Code, F1Error, check

LATENCY_BUCKETS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""From a message on a stream (0.1 ms) to a client that has given up, about three buckets a decade."""

SIZE_BUCKETS_BYTES = tuple(float(4**power) for power in range(3, 15))
"""From 64 bytes to 256 MiB."""

COUNT_BUCKETS = tuple(float(2**power) for power in range(14))
"""From 1 to 8192: messages in a batch, commits in a turn."""

NAMESPACE = "f1"

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one server. Asking twice for a name gives the same metric, so that parts need not share it."""

    def __init__(self, *, process: bool = False) -> None:
        """Make an empty registry; ``process`` adds memory, processor time and open files of the process."""
        self.registry = CollectorRegistry(auto_describe=True)
        self._made: dict[str, tuple[tuple[str, ...], Any]] = {}
        if process:
            ProcessCollector(registry=self.registry)

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter ``f1_NAME``; the exposition adds ``_total``."""
        return self._get(
            Counter, name, labels, lambda: Counter(name, help_text, labels, NAMESPACE, registry=self.registry)
        )

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge ``f1_NAME``."""
        return self._get(Gauge, name, labels, lambda: Gauge(name, help_text, labels, NAMESPACE, registry=self.registry))

    def histogram(
        self, name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] | None = None
    ) -> Histogram:
        """Return the histogram ``f1_NAME``, whose unit chooses the buckets: ``_seconds``, ``_bytes``, else counts."""
        if buckets is None:
            buckets = _buckets_of(name)
        bounds = tuple(buckets)
        return self._get(
            Histogram,
            name,
            labels,
            lambda: Histogram(name, help_text, labels, NAMESPACE, registry=self.registry, buckets=bounds),
        )

    def _get(self, kind: type[_Metric], name: str, labels: Sequence[str], make: Callable[[], _Metric]) -> _Metric:
        if name not in self._made:
            self._made[name] = (tuple(labels), make())
        made_labels, metric = self._made[name]
        check(type(metric) is kind, f"metric {name} is a {type(metric).__name__} already")
        check(made_labels == tuple(labels), f"metric {name} has the labels {made_labels} already")
        return cast(_Metric, metric)

    def text(self) -> str:
        """Return the exposition, as the endpoint serves it."""
        return generate_latest(self.registry).decode()

    def value(self, name: str, labels: dict[str, str] | None = None) -> float:
        """Return the value of the sample ``name`` as exposed (``f1_commits_total``); 0 if there is none yet."""
        found = self.registry.get_sample_value(name, labels or {})
        return 0.0 if found is None else found

    def serve(self, host: str, port: int) -> "MetricsEndpoint":
        """Serve the exposition at ``http://host:port/metrics`` from a thread of its own.

        Raises F1Error PORT_IN_USE if something listens there.
        """
        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            text = f"cannot serve metrics on {host}:{port}: {error.strerror}; configure another server.metrics_port"
            raise F1Error(Code.PORT_IN_USE, text, details={"host": host, "port": str(port)}) from error
        return MetricsEndpoint(server, thread)


def _buckets_of(name: str) -> Sequence[float]:
    if name.endswith("_seconds"):
        return LATENCY_BUCKETS_S
    return SIZE_BUCKETS_BYTES if name.endswith("_bytes") else COUNT_BUCKETS


class MetricsEndpoint:
    """A metrics endpoint that serves until closed."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.port = int(server.server_port)
        """The port it listens on."""

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
