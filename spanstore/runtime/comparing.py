"""What the replicas of a group say of one range of their records, put together: who differs from the majority? Pure."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from spanstore.group.digests import RangeDigest

_KEPT = 256


@dataclass(frozen=True, slots=True)
class Finding:
    """A replica, ``member`` of ``group``, that has something else than a majority; ``text`` says where."""

    group: int
    member: str
    text: str


class Comparison:
    """The digests of all groups that are being compared. Every server hears all replicas and judges for itself."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, int, bytes], dict[str, RangeDigest]] = OrderedDict()
        self.compared = 0
        """How many digests were compared with those of a majority."""
        self.findings: list[Finding] = []
        """Whose replicas were found to differ, the newest last."""

    def heard(self, group: int, member: str, digest: RangeDigest, voters: Iterable[str]) -> set[str]:
        """Take in what ``member`` has, and return the replicas that a majority of ``voters`` now proves wrong.

        Each is returned once. Without a majority of one opinion nobody is wrong, however many differ.
        """
        place = (group, digest.index, digest.start)
        answers = self._open.setdefault(place, {})
        if member in answers:
            return set()
        answers[member] = digest
        while len(self._open) > _KEPT:
            self._open.popitem(last=False)
        counted = set(voters)
        for opinion in {answer.digest for answer in answers.values() if answer.digest}:
            agreeing = {name for name, answer in answers.items() if answer.digest == opinion}
            if 2 * len(agreeing & counted) <= len(counted):
                continue
            before = 2 * len((agreeing - {member}) & counted) > len(counted)
            self.compared += 1
            wrong = {name for name in answers if name not in agreeing}
            # Those that were wrong before were told of when the majority became one.
            return self._found(place, digest, wrong & {member} if before else wrong)
        return set()

    def _found(self, place: tuple[int, int, bytes], digest: RangeDigest, wrong: set[str]) -> set[str]:
        group, index, start = place
        for member in sorted(wrong):
            borders = f"{start.hex()}..{digest.end.hex()}"
            text = f"group {group}: {member} differs from a majority in {borders} as of log entry {index}"
            self.findings = [*self.findings, Finding(group, member, text)][-20:]
        return wrong
