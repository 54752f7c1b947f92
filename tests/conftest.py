"""Settings that all tests share, and what no test may leave behind."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import loops

# The same examples on every run: a red build is red for everybody. `make test-long` runs all properties under the wider
# profile, with other examples each time. Properties that want another number of them: tests/amounts.py.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    deadline=None,
    database=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector, which each simulation runs twice, need not look at it."""
    gc.collect()
    gc.freeze()


loops.watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail a test that closed an event loop before the tasks in it had ended."""
    yield
    if tasks := loops.taken():
        pytest.fail("\n".join(["an event loop was closed, these tasks had not ended:", *tasks]), pytrace=False)
