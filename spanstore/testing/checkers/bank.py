"""Conservation: transfers move money between accounts, so every complete view of the bank shows the same total."""

from collections.abc import Iterable, Mapping

from spanstore.testing.checkers.violation import Violation
from spanstore.testing.history import Op, Status

CHECKER = "bank"


def decode_balance(value: bytes | None) -> int:
    """Return a balance from its stored form, a decimal number and perhaps a tag; an absent account holds nothing."""
    return 0 if value is None else int(value.partition(b"#")[0])


def encode_balance(balance: int, tag: int) -> bytes:
    """Return the stored form of a balance. The tag makes values of different writes different."""
    return b"%d#%d" % (balance, tag)


def check_bank(
    ops: Iterable[Op],
    accounts: Iterable[bytes],
    total: int,
    final: Mapping[bytes, bytes | None],
    *,
    overdrafts: bool = False,
) -> list[Violation]:
    """Check that each view of all accounts, and the ``final`` one, sums to ``total``; no balance may be below zero.

    Transactions that see all accounts count as views too.
    """
    names = sorted(accounts)
    violations = []
    for op in ops:
        if op.status is Status.OK:
            view = {read.key: read.value for read in reversed(op.reads)}
            if all(name in view for name in names):
                violations += _check_view(view, names, total, overdrafts, (op,))
    missing = [name for name in names if name not in final]
    if missing:
        violations.append(Violation(CHECKER, f"the final view lacks {missing}"))
    violations += _check_view({name: final.get(name) for name in names}, names, total, overdrafts, ())
    return violations


def _check_view(
    view: Mapping[bytes, bytes | None],
    names: list[bytes],
    total: int,
    overdrafts: bool,
    ops: tuple[Op, ...],
) -> list[Violation]:
    where = f"the view at {ops[0].ts}" if ops else "the final view"
    balances = {name: decode_balance(view[name]) for name in names}
    violations = []
    if sum(balances.values()) != total:
        violations.append(Violation(CHECKER, f"{where} sums to {sum(balances.values())}, not {total}", ops))
    negative = [name for name in names if balances[name] < 0]
    if negative and not overdrafts:
        violations.append(Violation(CHECKER, f"{where} has negative balances: {negative}", ops))
    return violations
