"""What all members of a group understand: entries of the log that one of them does not know are not logged.

Every member that there ever was knew every kind that was logged: a kind waits until all members speak the version that
brought it, a newcomer speaks no older one than they, and a server is not replaced by an older program once all of its
peers speak a newer version. So whoever has, or gets, the log can apply all of it.
"""

from collections.abc import Callable

from f1common.errors import Code, F1Error
from spanstore.paxos.configuration import Configuration, server_of
from spanstore.txn.kinds import CONFIGURATION_SINCE, FIRST, NEWEST, SINCE, WORK

VersionOf = Callable[[str], int]
"""Returns the version of the protocol that a server speaks, 0 while that is not known."""


def newest_everywhere(server: str) -> int:
    """Say of every server that it speaks the newest version."""
    return NEWEST


class Versions:
    """Tells the leader of a group what it may log."""

    def __init__(self, version_of: VersionOf) -> None:
        self._version_of = version_of

    def allows(self, kind: type, members: Configuration) -> bool:
        """Tell whether all of ``members`` know commands of this kind."""
        return SINCE[kind] <= FIRST or not self._without(SINCE[kind], members.members)

    def check(self, kind: type, members: Configuration) -> None:
        """Raise FAILED_PRECONDITION if one of ``members`` does not know commands of this kind."""
        if not self.allows(kind, members):
            raise self._refusal(SINCE[kind], members.members)

    def check_change(self, before: Configuration, after: Configuration) -> None:
        """Raise FAILED_PRECONDITION if a member knows no configurations, or a newcomer less than the members.

        One that goes, and of which nothing is known, will read no more of the log.
        """
        gone = [member for member in before.members if member not in after.members]
        known = [member for member in gone if self._version_of(server_of(member))]
        readers = (*after.members, *known)
        if self._without(CONFIGURATION_SINCE, readers):
            raise self._refusal(CONFIGURATION_SINCE, readers)
        least = min((v for v in map(self._version_of, map(server_of, before.members)) if v), default=FIRST)
        newcomers = [member for member in after.members if member not in before.members]
        if self._without(least, newcomers):
            raise self._refusal(least, newcomers)

    def waiting(self, members: Configuration) -> str:
        """Say what the group does not do for now, and until when; nothing if it does all that there is."""
        behind = self._without(NEWEST, members.members)
        if not behind:
            return ""
        least = min(max(self._version_of(server), FIRST) for server in behind)
        work = "; ".join(WORK[version] for version in sorted(WORK) if version > least)
        return (
            f"{work} wait until {self._named(behind)} can take part in it: version {NEWEST} of the protocol is needed"
        )

    def _without(self, version: int, members: tuple[str, ...] | list[str]) -> list[str]:
        """Return the servers of ``members`` that do not speak ``version``, as far as is known."""
        return sorted({server_of(m) for m in members if self._version_of(server_of(m)) < version})

    def _named(self, servers: list[str]) -> str:
        said = ((server, self._version_of(server)) for server in servers)
        return ", ".join(
            f"{server}, which speaks version {version}" if version else f"{server}, which has not said its version"
            for server, version in said
        )

    def _refusal(self, version: int, members: tuple[str, ...] | list[str]) -> F1Error:
        behind = self._without(version, members)
        text = f"this needs version {version} of the protocol, and there is {self._named(behind)}"
        unknown = any(not self._version_of(server) for server in behind)
        retry = "; start it, or retry in a moment" if unknown else "; upgrade it first"
        return F1Error(Code.FAILED_PRECONDITION, text + retry, retryable=unknown)
