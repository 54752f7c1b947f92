"""Errors say what the caller may do, and keep saying it across processes."""

import pickle
import re

import pytest

import f1common.errors
from f1common.errors import RETRYABLE, Code, F1Error, InvariantViolation, check


def test_an_error_prints_as_code_and_message() -> None:
    assert str(F1Error(Code.NOT_FOUND, "no table Customer")) == "NOT_FOUND: no table Customer"


@pytest.mark.parametrize("code", list(Code))
def test_each_code_has_a_default_that_the_raiser_may_override(code: Code) -> None:
    assert F1Error(code, "").retryable is (code in RETRYABLE)
    assert F1Error(code, "", retryable=True).retryable is True
    assert F1Error(code, "", retryable=False).retryable is False


def test_the_table_in_the_docstring_lists_every_code_with_its_default() -> None:
    rows = re.findall(r"^``(\w+)`` +(yes|no) +\S", f1common.errors.__doc__ or "", re.MULTILINE)
    assert dict(rows) == {code.value: "yes" if code in RETRYABLE else "no" for code in Code}


def test_an_unknown_outcome_is_ambiguous_and_others_are_when_said() -> None:
    assert F1Error(Code.UNKNOWN_OUTCOME, "").ambiguous
    assert not F1Error(Code.UNAVAILABLE, "").ambiguous
    assert F1Error(Code.UNAVAILABLE, "", ambiguous=True).ambiguous


def test_details_are_a_copy_that_nobody_can_change() -> None:
    details = {"leader": "span-a1"}
    error = F1Error(Code.NOT_LEADER, "", details=details)
    details["leader"] = "span-b1"
    assert error.details == {"leader": "span-a1"}
    with pytest.raises(TypeError):
        error.details["leader"] = "x"  # type: ignore[index]
    assert F1Error(Code.NOT_LEADER, "").details == {}


def test_check_raises_only_for_what_is_false() -> None:
    check(True, "fine")
    check([0], "any true value")
    with pytest.raises(InvariantViolation, match="INTERNAL: two leaders") as caught:
        check(0, "two leaders")
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "error",
    [
        F1Error(Code.ABORTED, "wounded", retryable=False, ambiguous=True, details={"by": "x"}),
        InvariantViolation("two leaders"),
    ],
)
def test_errors_survive_the_way_to_a_sibling_process(error: F1Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert repr(copy) == repr(error)
