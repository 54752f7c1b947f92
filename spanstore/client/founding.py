"""Founding a group while the cluster runs: one commit, and then waiting until the group serves.

F1 section 2.1: groups are what is replicated, and placed; a cluster that grows, or gets tables that belong elsewhere,
needs more of them. See :mod:`spanstore.placement.founding` for why one commit is all.
"""

import asyncio
from collections import Counter

from f1common.errors import Code, F1Error
from spanstore.client.client import SpanClient
from spanstore.client.groups import Progress, read_directory
from spanstore.client.values import ExpectAbsent, ExpectVersion, Precondition, Write
from spanstore.engine.keyspace import MAX_GROUP
from spanstore.paxos.configuration import server_of
from spanstore.placement.directory import Directory, group_key, standing_key
from spanstore.placement.founding import (
    SINCE_VERSION,
    Founding,
    choose_founders,
    decode_name,
    encode_founding,
    encode_name,
    founding_key,
    name_key,
)
from spanstore.placement.policy import ANYWHERE, Policy, check_policy, encode_policy, group_policy_key
from spanstore.placement.range_map import META_GROUP

_TRIES = 20
_PAUSE_S = 0.2
_LONGEST_NAME = 64


async def create_group(
    client: SpanClient,
    name: str,
    *,
    voters: int = 0,
    policy: Policy = ANYWHERE,
    timeout_s: float = 60.0,
    progress: Progress = lambda text: None,
) -> int:
    """Found the group ``name``, unless it was founded before, and return its number once it has a leader.

    ``voters``: as many as most groups have, unless it, or the zones of ``policy``, say otherwise. May be repeated: what
    was founded under that name stays as it is. Raises INVALID_ARGUMENT, FAILED_PRECONDITION (no servers for it, servers
    of an older version), ALREADY_EXISTS (it was founded with another policy), DEADLINE_EXCEEDED (it goes on).
    """
    if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME or name != name.strip() or name.isdecimal():
        text = f"a group's name has 1 to {_LONGEST_NAME} printable characters, and is no number"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    number = None
    for _ in range(_TRIES):
        number = await _number_of(client, name)
        if number is not None:
            break
        try:
            number = await _found(client, name, voters, policy)
            progress(f"group {number} is founded")
            break
        except F1Error as error:
            # Another group took the number or the name, or a server was given orders meanwhile.
            if error.code not in (Code.ABORTED, Code.ALREADY_EXISTS):
                raise
    if number is None:
        raise F1Error(Code.ABORTED, "others keep founding groups; retry", retryable=True)
    await _until_led(client, number, voters, policy, timeout_s, progress)
    return number


async def _number_of(client: SpanClient, name: str) -> int | None:
    (value,) = (await client.read([name_key(name)])).values()
    return None if value is None else decode_name(value)


async def _found(client: SpanClient, name: str, voters: int, policy: Policy) -> int:
    """Commit the founding of a group, and return its number. Raises ABORTED, ALREADY_EXISTS if others were quicker."""
    directory = await read_directory(client)
    check_policy(policy, [server.zone for server in directory.servers.values()], voters)
    _check_versions(directory)
    founding = choose_founders(
        await _homes(client, directory),
        {server: item.zone for server, item in directory.servers.items()},
        _load(directory),
        voters or len(policy.zones) or _usual_voters(directory),
        policy.zones,
    )
    number = 1 + max({META_GROUP, *directory.groups, *directory.foundings, *client.groups()})
    if number > MAX_GROUP:
        raise F1Error(Code.FAILED_PRECONDITION, f"a cluster has at most {MAX_GROUP} groups")
    writes = [
        Write(founding_key(number), encode_founding(Founding(name, founding.voters))),
        Write(name_key(name), encode_name(number)),
    ]
    if policy != ANYWHERE:
        writes.append(Write(group_policy_key(number), encode_policy(policy)))
    absent = (founding_key(number), name_key(name), group_key(number), group_policy_key(number))
    standing = await _standing(client, founding, directory)
    await client.commit(writes, [*(ExpectAbsent(key) for key in absent), *standing])
    return number


def _check_versions(directory: Directory) -> None:
    """Refuse as long as a server would not found its replica, or not tell clients of the group."""
    for server in sorted(directory.servers):
        version = directory.versions.get(server, 0)
        if version < SINCE_VERSION:
            said = f"speaks version {version}" if version else "has not said its version"
            text = f"all servers must speak version {SINCE_VERSION} of the protocol for that, and {server} {said}"
            raise F1Error(Code.FAILED_PRECONDITION, f"{text}: upgrade it, start it, or remove it")


async def _homes(client: SpanClient, directory: Directory) -> dict[str, str]:
    """Return the data directories of the servers that may have a replica: they answer, and are not to be emptied."""
    found = {}
    for answer in (await client.status()).values():
        if isinstance(answer, F1Error) or answer.name not in directory.servers or directory.is_draining(answer.name):
            continue
        if answer.home and not answer.all_damaged:
            found[answer.name] = answer.home
    return dict(sorted(found.items()))


def _load(directory: Directory) -> Counter[str]:
    """Return how many replicas each server has, or is about to have."""
    members = {number: founding.voters for number, founding in directory.foundings.items()}
    members |= {number: configuration.members for number, configuration in directory.groups.items()}
    return Counter(server_of(member) for group in members.values() for member in group)


def _usual_voters(directory: Directory) -> int:
    """Return how many voters most groups have."""
    counts = Counter(len(members.voters) for members in directory.groups.values() if len(members.voters) % 2)
    return max(counts, key=lambda count: (counts[count], count), default=3)


async def _standing(client: SpanClient, founding: Founding, directory: Directory) -> list[Precondition]:
    """Return the condition that no server of the group is given the order to go meanwhile."""
    keys = [standing_key(server_of(member)) for member in founding.voters]
    found = await client.read(keys)
    if (await read_directory(client)).standing != directory.standing:
        raise F1Error(Code.ABORTED, "a server was given orders meanwhile; retry", retryable=True)
    stored = ((key, version) for key, version in zip(keys, found.versions, strict=True))
    return [
        ExpectVersion(key, 0 if version is None or version.value is None else version.ts) for key, version in stored
    ]


def _same(one: Policy, other: Policy) -> bool:
    return Counter(one.zones) == Counter(other.zones) and one.leader_zone == other.leader_zone


async def _until_led(
    client: SpanClient, number: int, voters: int, policy: Policy, timeout_s: float, progress: Progress
) -> None:
    end = asyncio.get_running_loop().time() + timeout_s
    while True:
        directory = await read_directory(client)
        founding = directory.foundings[number]
        has = directory.policies.get(number, ANYWHERE)
        if (policy != ANYWHERE and not _same(policy, has)) or voters not in (0, len(founding.voters)):
            text = f"group {number} was founded as {founding.name!r} with {len(founding.voters)} voters, {has}"
            raise F1Error(Code.ALREADY_EXISTS, f"{text}: name another one, or change it with `f1 group place {number}`")
        if number in directory.groups:
            # Every server knows of it a moment later; this client does now.
            await client.learn_of([number])
            return
        servers = ", ".join(server_of(member) for member in founding.voters)
        progress(f"group {number}: its replicas at {servers} begin and elect a leader")
        if asyncio.get_running_loop().time() >= end:
            text = f"group {number} is founded at {servers} and has no leader yet: start most of these servers"
            raise F1Error(Code.DEADLINE_EXCEEDED, f"{text}, and it begins by itself")
        await asyncio.sleep(_PAUSE_S)
