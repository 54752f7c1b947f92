"""Saying where groups lie and are led, and where tables belong; the servers then work towards it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.client.client import SpanClient
from spanstore.client.groups import read_directory
from spanstore.client.placement import split_range, stored_map
from spanstore.client.surveying import table_policies
from spanstore.client.values import Write
from spanstore.placement.borders import check_border
from spanstore.placement.policy import ANYWHERE, Policy, check_policy, encode_policy, group_policy_key, table_policy_key
from spanstore.placement.range_map import META_GROUP, RangeMap


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table's policy, the groups that hold its ranges, and those that meet the policy."""

    table: int
    policy: Policy
    groups: tuple[int, ...]
    fit: tuple[int, ...]

    @property
    def note(self) -> str:
        """What is still to be done, empty if the policy is met."""
        if not self.fit:
            command = f"f1 group create NAME{options(self.policy)}"
            return f"no group meets it: `{command}` founds one, `f1 group place` changes one"
        return "" if set(self.groups) <= set(self.fit) else "its ranges move"


def options(policy: Policy) -> str:
    """Return the options of a command for a policy."""
    zones = f" --zones {','.join(policy.zones)}" if policy.zones else ""
    return zones + (f" --leader-zone {policy.leader_zone}" if policy.leader_zone else "")


async def place_group(client: SpanClient, group: int, policy: Policy) -> None:
    """Say where a group's voters should lie and where it should be led. Raises NOT_FOUND, INVALID_ARGUMENT."""
    directory = await read_directory(client)
    if group not in directory.groups:
        known = ", ".join(map(str, sorted(directory.groups)))
        raise F1Error(Code.NOT_FOUND, f"there is no group {group}; there are {known}")
    zones = [server.zone for server in directory.servers.values()]
    check_policy(policy, zones, len(directory.groups[group].voters))
    await client.commit([Write(group_policy_key(group), encode_policy(policy))])


async def place_table(client: SpanClient, table: int, policy: Policy) -> TablePlace:
    """Say what kind of group a table belongs in, and return what that means. Raises INVALID_ARGUMENT.

    The table's ranges get borders of their own at its beginning and end.
    """
    directory = await read_directory(client)
    check_policy(policy, [server.zone for server in directory.servers.values()])
    for border in (tuples.encode((table,)), tuples.encode((table + 1,))):
        check_border(border)
        try:
            await split_range(client, border)
        except F1Error as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
    value = None if policy == ANYWHERE else encode_policy(policy)
    await client.commit([Write(table_policy_key(table), value)])
    ranges, _ = await stored_map(client)
    return _place(table, policy, ranges, directory.policies)


async def forget_table(client: SpanClient, table: int) -> None:
    """Remove the policy of a table that is no more."""
    await client.commit([Write(table_policy_key(table), None)])


async def table_places(client: SpanClient, tables: Sequence[int] | None = None) -> list[TablePlace]:
    """Return the places of ``tables``, or of those that have a policy, by their ids."""
    ranges, _ = await stored_map(client)
    groups = (await read_directory(client)).policies
    policies = await table_policies(client)
    wanted = sorted(policies) if tables is None else tables
    return [_place(table, policies.get(table, ANYWHERE), ranges, groups) for table in wanted]


def _place(table: int, policy: Policy, ranges: RangeMap, policies: Mapping[int, Policy]) -> TablePlace:
    held = {group for _, _, group in ranges.pieces(tuples.encode((table,)), tuples.encode((table + 1,)))}
    fit = [group for group, has in sorted(policies.items()) if group != META_GROUP and policy.is_met_by(has)]
    return TablePlace(table, policy, tuple(sorted(held)), tuple(fit))
