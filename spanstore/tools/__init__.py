"""Commands about the storage tier: ranges, status, benchmarks. They are clients like any other."""
