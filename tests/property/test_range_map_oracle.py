"""The range map against a dumb one: owners of a few keys, and borders, after any splits, merges and moves."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from spanstore.placement.range_map import KEY_MAX, KEY_MIN, RangeMap

KEYS = [bytes((letter,)) for letter in range(1, 13)]
"""All keys that there are; a border lies at or below one of them."""

GROUPS = 4

position = st.integers(0, len(KEYS) - 1)
step = st.one_of(
    st.tuples(st.just("split"), position, st.just(0), st.just(0)),
    st.tuples(st.just("merge"), position, st.just(0), st.just(0)),
    st.tuples(st.just("assign"), position, st.integers(1, len(KEYS)), st.integers(0, GROUPS - 1)),
)


@dataclass
class Dumb:
    """``owners`` of KEYS, and positions at which a range begins. What is below the first key is with it."""

    owners: list[int]
    borders: set[int]

    def apply(self, kind: str, at: int, length: int, group: int) -> Code | None:
        """Do a step, or return what refuses it."""
        match kind:
            case "split" if at in self.borders:
                return Code.ALREADY_EXISTS
            case "split":
                self.borders.add(at)
            case "merge" if at not in self.borders:
                return Code.NOT_FOUND
            case "merge" if self.owners[at - 1] != self.owners[at]:
                return Code.FAILED_PRECONDITION
            case "merge":
                self.borders.discard(at)
            case _:
                end = min(at + length, len(KEYS))
                self.owners[at:end] = [group] * (end - at)
                self.borders |= {at, *({end} if end < len(KEYS) else set())}
        return None


def real_step(ranges: RangeMap, kind: str, at: int, length: int, group: int) -> RangeMap:
    match kind:
        case "split":
            return ranges.split(KEYS[at])
        case "merge":
            return ranges.merge(KEYS[at])
        case _:
            end = KEYS[at + length] if at + length < len(KEYS) else KEY_MAX
            return ranges.assign(KEYS[at], end, group)


@given(st.lists(step, max_size=40))
def test_any_changes_leave_what_a_list_of_keys_would_have(steps: list[tuple[str, int, int, int]]) -> None:
    dumb = Dumb([0] * len(KEYS), set())
    ranges = RangeMap.from_starts([(KEY_MIN, 0)])
    for number, (kind, at, length, group) in enumerate(steps):
        if kind == "merge" and at == 0:
            continue  # whether something lies below the first key is not of interest
        version = ranges.version
        refusal = dumb.apply(kind, at, length, group)
        try:
            ranges = real_step(ranges, kind, at, length, group)
            assert refusal is None, (number, kind)
            assert ranges.version == version + 1
        except F1Error as error:
            assert error.code is refusal, (number, kind, error)
        assert [ranges.group_of(key) for key in KEYS] == dumb.owners
        assert {KEYS.index(item.start) for item in ranges.ranges if item.start != KEY_MIN} == dumb.borders
        # Ranges are a partition whatever happens.
        assert [item.end for item in ranges.ranges][:-1] == [item.start for item in ranges.ranges][1:]
        assert (ranges.ranges[0].start, ranges.ranges[-1].end) == (KEY_MIN, KEY_MAX)
        assert RangeMap.decode(ranges.encode()).ranges == ranges.ranges
