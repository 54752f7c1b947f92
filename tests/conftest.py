"""Settings that all tests share."""

import gc

from hypothesis import HealthCheck, settings

# The same examples on every run: a red build is red for everybody. `make test-long` asks for the wider profile.
settings.register_profile(
    "default", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
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
