"""What a schema says of names that it has not."""

import pytest

from f1common.errors import F1Error
from f1server.catalog.schema import ElementState, Index, IndexPart, Schema, Table


def test_an_index_that_is_being_built_is_no_hint_for_its_own_name() -> None:
    part = (IndexPart(1),)
    built = Index(3, "ByBudget", part, state=ElementState.WRITE_ONLY)
    table = Table(2, "R", 0, (), (1,), indexes=(built, Index(4, "ByBudgets", part)))
    with pytest.raises(F1Error, match="did you mean ByBudgets"):
        table.index("ByBudget")


def test_nor_is_a_table() -> None:
    made = Table(2, "Visit", 0, (), (1,), state=ElementState.DELETE_ONLY)
    schema = Schema("default", tables=(made, Table(5, "Visits", 0, (), (1,))))
    with pytest.raises(F1Error, match="did you mean Visits"):
        schema.table("Visit")
