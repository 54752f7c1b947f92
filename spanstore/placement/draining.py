"""Whether a server can be emptied: is there a place for each of its replicas?

Pure. The placement driver finds the places by itself (:mod:`spanstore.placement.balance`); here an operator is told
beforehand when it will find none, or only worse ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from spanstore.paxos.configuration import server_of
from spanstore.placement.balance import GroupState, Health, ServerState, best_place


def why_not(server: str, servers: Iterable[ServerState], groups: Iterable[GroupState], *, any_zone: bool) -> list[str]:
    """Return what keeps the replicas of ``server`` where they are, one sentence for each group; empty: nothing.

    Unless ``any_zone``, no group's voters may come to lie in fewer zones than now.
    """
    known = {state.name: state for state in servers}
    reasons = []
    for group in sorted(groups, key=lambda group: group.number):
        member = next((m for m in group.voters + group.learners if server_of(m) == server), None)
        if member is not None:
            reasons.append(_why_stays(group, member, known, any_zone))
    return [reason for reason in reasons if reason]


def _why_stays(group: GroupState, member: str, known: Mapping[str, ServerState], any_zone: bool) -> str:
    place = best_place(group, member, known, Counter())
    if place is None:
        others = sorted(server_of(other) for other in group.voters + group.learners if other != member)
        fit = sum(state.health is Health.UP and not state.draining for state in known.values())
        return (
            f"group {group.number} has no place for another replica: {', '.join(others) or 'no other server'} "
            f"{'has' if len(others) == 1 else 'have'} one, and {fit} servers are up and not being drained"
        )
    if member not in group.voters or any_zone:
        return ""
    before = {known[server_of(voter)].zone for voter in group.voters if server_of(voter) in known}
    stay = {known[server_of(v)].zone for v in group.voters if v != member and server_of(v) in known}
    after = stay | {known[place].zone}
    if len(after) < len(before):
        return f"the voters of group {group.number} would lie in {len(after)} zones instead of {len(before)}"
    return ""
