"""Protocol versions: two processes that would misunderstand each other find out before they exchange anything.

The version of a protocol travels in the first message of a stream where the message has a field for it, or in the
metadata of a call. Neither side guesses: another version is refused, and both versions are named. Protocols of servers
that are upgraded one after the other *reach* one version up and down: version n and n + 1 work side by side, as long as
nothing that only n + 1 understands is sent before everybody speaks it. The logs of groups see to that by themselves
(``spanstore.txn.kinds``); a message that n would misunderstand is sent in version n + 2 of the program only.
"""

from typing import Any

from f1common.errors import Code, F1Error

METADATA_KEY = "f1-protocol"

Metadata = tuple[tuple[str, str], ...]


def protocol_metadata(version: int) -> Metadata:
    """Return the metadata that announces ``version`` when a call is made with it."""
    return ((METADATA_KEY, str(version)),)


def check_version(peer: str, theirs: int, ours: int, reach: int = 0) -> None:
    """Raise F1Error VERSION_MISMATCH if the version of ``peer``, ``theirs``, is more than ``reach`` from ``ours``."""
    if abs(theirs - ours) <= reach:
        return
    older = "this process" if theirs > ours else peer
    raise F1Error(
        Code.VERSION_MISMATCH,
        f"{peer} speaks version {theirs} of the protocol, this process version {ours}; upgrade {older}",
        details={"theirs": str(theirs), "ours": str(ours)},
    )


def check_call_version(context: Any, ours: int) -> None:
    """Check the version in the metadata of the call that a servicer's ``context`` belongs to.

    A call without one is let through: tools such as grpcurl announce none and read self-describing messages. Raises
    F1Error VERSION_MISMATCH.
    """
    for key, value in context.invocation_metadata() or ():
        if key == METADATA_KEY:
            text = str(value)
            check_version(f"the caller ({context.peer()})", int(text) if text.isdecimal() else 0, ours)
