"""What groups own, against a dictionary from key to owner, over random moves with repeated and late commands."""

import random

import pytest

from f1common.errors import Code, F1Error
from spanstore.placement import holdings as rules
from spanstore.placement.holdings import Holdings, decode_holdings, encode_holdings, first_holdings
from spanstore.txn.commands import (
    AbandonCmd,
    BeginMoveCmd,
    CedeCmd,
    CopyStage,
    MoveCommand,
    OwnCmd,
    Progress,
    StageCmd,
)

KEYS = [bytes([k]) for k in range(0x10, 0x30)]
END = bytes([0x30])


def applied(record: Holdings, command: MoveCommand) -> Holdings:
    """As a replica does it: what does not count changes nothing."""
    match command:
        case BeginMoveCmd():
            after = rules.after_begin(record, command)
        case StageCmd():
            after = rules.after_stage(record, command)
        case CedeCmd():
            after = rules.after_cede(record, command)
        case OwnCmd():
            after = rules.after_own(record, command)
        case AbandonCmd():
            after = rules.after_abandon(record, command)
        case _:
            after = None
    return after if after is not None else record


def ready(move: int, seq: int = 1) -> StageCmd:
    return StageCmd(move, seq, Progress(CopyStage.READY))


@pytest.mark.parametrize("seed", range(30))
def test_every_key_has_the_owner_that_the_dictionary_says(seed: int) -> None:
    """Old commands of all kinds come again at any time, to any group."""
    rng = random.Random(seed)
    groups = {g: first_holdings([(KEYS[8 * g], KEYS[8 * g + 8] if g < 3 else END)]) for g in range(4)}
    owner = {key: index // 8 for index, key in enumerate(KEYS)}
    old: list[tuple[int, MoveCommand]] = []

    def log(group: int, command: MoveCommand) -> None:
        groups[group] = applied(groups[group], command)
        old.append((group, command))
        for again, late in rng.sample(old, min(3, len(old))):
            groups[again] = applied(groups[again], late)

    for move in range(1, 60):
        low = rng.randrange(len(KEYS))
        source = owner[KEYS[low]]
        high = next((i for i in range(low, len(KEYS)) if owner[KEYS[i]] != source), len(KEYS))
        high = rng.randint(low + 1, high)
        start, end = KEYS[low], KEYS[high] if high < len(KEYS) else END
        target = rng.choice([g for g in groups if g != source])
        log(target, BeginMoveCmd(move, start, end, source))
        log(target, ready(move))
        if rng.random() < 0.3:
            log(source, AbandonCmd(move))
            log(target, AbandonCmd(move))
            log(source, CedeCmd(move, start, end, target, 7, 5))
            log(target, OwnCmd(move, 7))
        else:
            log(source, CedeCmd(move, start, end, target, 7, 5))
            assert not any(record.owns_any(start, end) for record in groups.values())
            log(source, AbandonCmd(move))
            assert groups[source].ceded_by(move) is not None
            log(target, OwnCmd(move, 7))
            owner.update(dict.fromkeys(KEYS[low:high], target))
        for key, group in owner.items():
            assert [g for g, record in groups.items() if record.owned().has_key(key)] == [group]
        assert all(decode_holdings(encode_holdings(record)) == record for record in groups.values())


def test_a_piece_counts_only_as_the_next_one() -> None:
    record = applied(first_holdings([]), BeginMoveCmd(3, b"a", b"b", 1))
    once = applied(record, StageCmd(3, 1, Progress(CopyStage.ROWS)))
    assert rules.after_stage(once, StageCmd(3, 1, Progress(CopyStage.READY))) is None
    assert rules.after_stage(once, StageCmd(3, 3, Progress(CopyStage.READY))) is None
    assert rules.after_stage(once, StageCmd(2, 2, Progress(CopyStage.READY))) is None
    assert rules.after_own(once, OwnCmd(3, 1)) is None
    assert applied(applied(once, ready(3, 2)), OwnCmd(3, 1)).ranges == ((b"a", b"b"),)


def test_rows_are_removed_only_for_the_newest_move_that_ended() -> None:
    record = applied(first_holdings([(b"a", b"c")]), CedeCmd(3, b"a", b"b", 2, 7, 5))
    assert record.may_clear(3, b"a", b"b")
    assert not record.may_clear(2, b"a", b"b")
    assert not record.may_clear(3, b"a", b"bb"), "it owns from b on"
    coming_back = applied(record, BeginMoveCmd(4, b"a", b"b", 2))
    assert not coming_back.may_clear(3, b"a", b"b")


def test_the_heir_is_the_last_one_and_is_forgotten_when_the_range_is_back() -> None:
    record = applied(first_holdings([(b"a", b"z")]), CedeCmd(1, b"a", b"b", 2, 7, 5))
    assert record.heir_of(b"a", b"a\x00") == 2
    assert record.heir_of(b"c", b"d") is None
    back = applied(applied(applied(record, BeginMoveCmd(2, b"a", b"b", 2)), ready(2)), OwnCmd(2, 9))
    assert back.heir_of(b"a", b"b") is None
    assert back.epoch == 2 and back.ranges == ((b"a", b"z"),)


def test_a_damaged_record_is_told() -> None:
    with pytest.raises(F1Error) as caught:
        decode_holdings(b"\x91\x01")
    assert caught.value.code is Code.DATA_CORRUPTION
