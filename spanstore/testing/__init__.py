"""The simulator, its workloads and its checkers. Only tests import this package."""
