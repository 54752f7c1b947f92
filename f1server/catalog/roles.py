"""Roles and grants as elements of a schema: who may log in, and what a role may do with which table.

They need no states (schema-change paper, section 3.2): nothing is stored for them in rows. A server goes by the version
that it serves, so that a grant or revoke takes effect at each server with the version that holds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag

__all__ = ["ALL", "NO_PRIVILEGE", "Grant", "Privilege", "Role", "merged", "names_of", "with_roles_above"]


class Privilege(IntFlag):
    """What a role may do with the rows of a table; the numbers are stored."""

    SELECT = 1
    INSERT = 2
    UPDATE = 4
    DELETE = 8


NO_PRIVILEGE = Privilege(0)
ALL = Privilege.SELECT | Privilege.INSERT | Privilege.UPDATE | Privilege.DELETE


@dataclass(frozen=True, slots=True)
class Grant:
    """The privileges of one role on one table."""

    role_id: int
    privileges: Privilege


@dataclass(frozen=True, slots=True)
class Role:
    """A role. ``create``: it may change the schema; ``member_of``: the roles whose rights it has too.

    ``verifier`` proves the password (:mod:`f1common.scram`), empty: nobody can log in. It is shown to nobody.
    """

    id: int
    name: str
    login: bool = False
    superuser: bool = False
    create: bool = False
    verifier: str = field(default="", repr=False)
    member_of: tuple[int, ...] = ()


def names_of(privileges: Privilege) -> list[str]:
    """Return the names of privileges, in their order."""
    return [p.name or "" for p in Privilege if p in privileges]


def merged(grants: Iterable[Grant], role_id: int, privileges: Privilege, *, revoke: bool = False) -> tuple[Grant, ...]:
    """Return grants with some more, or fewer, for a role; by role, without empty ones."""
    found = {grant.role_id: grant.privileges for grant in grants}
    had = found.get(role_id, NO_PRIVILEGE)
    found[role_id] = had & ~privileges if revoke else had | privileges
    return tuple(Grant(number, what) for number, what in sorted(found.items()) if what)


def with_roles_above(roles: Sequence[Role], role_id: int) -> frozenset[int]:
    """Return a role and all roles whose rights it has by membership. There are no circles."""
    by_id = {role.id: role for role in roles}
    found: set[int] = set()
    waiting = [role_id]
    while waiting:
        number = waiting.pop()
        if number not in found and number in by_id:
            found.add(number)
            waiting += by_id[number].member_of
    return frozenset(found)
