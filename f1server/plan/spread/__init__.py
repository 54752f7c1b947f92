"""How a query is spread over slaves."""

from f1server.plan.spread.planner import SpreadOptions, Unspreadable, examined, is_short, spread

__all__ = ["SpreadOptions", "Unspreadable", "examined", "is_short", "spread"]
