"""What one turn of a replica wants done, and in which order."""

from dataclasses import dataclass, field

from spanstore.paxos.messages import HardState, LogEntry, Message


@dataclass(slots=True)
class Effects:
    """The outcome of one turn. The fields carry the ordering contract; the driver must:

    1. hand ``lost_leadership`` to the group before anything else (after ``became_leader`` if both are set:
       leadership was won and lost within the turn);
    2. optionally, at any time from now on, send ``send_now`` (a leader's Accepts, PreVotes: they promise nothing);
    3. write ``hard_state``, delete the log from ``truncate_from`` on, append ``append`` and delete the log below
       ``truncate_below``, all in one atomic write, writes of successive turns in order;
    4. wait until the write is durable;
    5. send ``send_synced`` (Promise, Accepted, Prepare: each states something that a crash must not undo) and call
       ``Replica.synced(effects, now)``, in the order of the turns.

    A failed write or sync is a crash of the replica: none of its effects may be retried or skipped.
    Without :meth:`writes` there is nothing to wait for, but steps 4 and 5 still come after those of earlier turns.
    """

    hard_state: HardState | None = None
    truncate_from: int | None = None
    append: list[LogEntry] = field(default_factory=list)
    truncate_below: int | None = None
    send_now: list[tuple[str, Message]] = field(default_factory=list)
    send_synced: list[tuple[str, Message]] = field(default_factory=list)
    became_leader: bool = False
    lost_leadership: bool = False

    def writes(self) -> bool:
        """Tell whether there is anything to make durable."""
        return (
            bool(self.append)
            or self.hard_state is not None
            or self.truncate_from is not None
            or self.truncate_below is not None
        )
