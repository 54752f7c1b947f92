"""The storage tier as its users see it: the only package of spanstore that upper tiers import."""

from spanstore.client.client import SpanClient
from spanstore.client.foreground import ForegroundLoad
from spanstore.client.pinning import Pins
from spanstore.client.scanning import (
    STORED_COLUMNS,
    Scan,
    ScanColumn,
    ScanOperator,
    ScanPredicate,
    ScanSource,
    TableRows,
)
from spanstore.client.sketching import Segment, Sketch, TableCount
from spanstore.client.transaction import Transaction
from spanstore.client.values import (
    CommitId,
    Decision,
    ExpectAbsent,
    ExpectExists,
    ExpectUnchanged,
    ExpectVersion,
    KeyRange,
    NoNewer,
    Puts,
    ReadResult,
    Row,
    Version,
    Write,
)
from spanstore.placement.pins import Pin

__all__ = [
    "STORED_COLUMNS",
    "CommitId",
    "Decision",
    "ExpectAbsent",
    "ExpectExists",
    "ExpectUnchanged",
    "ExpectVersion",
    "ForegroundLoad",
    "KeyRange",
    "NoNewer",
    "Pin",
    "Pins",
    "Puts",
    "ReadResult",
    "Row",
    "Scan",
    "ScanColumn",
    "ScanOperator",
    "ScanPredicate",
    "ScanSource",
    "Segment",
    "Sketch",
    "SpanClient",
    "TableCount",
    "TableRows",
    "Transaction",
    "Version",
    "Write",
]
