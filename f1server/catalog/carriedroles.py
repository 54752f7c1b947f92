"""Statements about roles, made in other schemas too: in those that a running schema change leads from and to.

A statement is compiled against the schema that is current. What it means there, by id, is done in the other one as far
as that has the elements. What the running change itself does about roles stays: where a statement gives what the change
is going to take, that is taken all the same; where it takes what the change is going to give, that is not given.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from f1server.catalog.alterroles import granted_tables
from f1server.catalog.roles import NO_PRIVILEGE, Role, merged, with_roles_above
from f1server.catalog.rolestatements import (
    AlterRole,
    CreateRole,
    DropRole,
    GrantCreate,
    GrantOnTables,
    GrantRoles,
    RoleStatement,
)
from f1server.catalog.schema import Schema, Table

__all__ = ["Clash", "Made", "carried", "same_elements"]


class Clash(Exception):
    """A statement cannot be made in the other schema: the name is another role's there, or there would be a circle."""


@dataclass(frozen=True, slots=True)
class Made:
    """A statement, and the schemas before and after it."""

    statement: RoleStatement
    before: Schema
    after: Schema


def same_elements(one: Schema, other: Schema) -> bool:
    """Tell whether two schemas differ in roles, grants and numbers of versions at most."""
    return _bare(one) == _bare(other)


def _bare(schema: Schema) -> Schema:
    return replace(schema, version=0, roles=(), tables=tuple(replace(table, grants=()) for table in schema.tables))


def carried(made: Sequence[Made], target: Schema, *, ahead: bool) -> Schema:
    """Return ``target`` after statements; ``ahead``: the change leads there, so that it may still give and take.

    Raises Clash.
    """
    for one in made:
        target = _carry(one, target, ahead)
    return target


def _carry(made: Made, target: Schema, ahead: bool) -> Schema:
    match made.statement:
        case CreateRole():
            return _created(made, target)
        case AlterRole() as statement:
            return _altered(made.before.role(statement.name), made.after, statement, target, ahead)
        case DropRole(names):
            known = made.before.roles_by_name
            return _without(target, {known[name.lower()].id for name in names if name.lower() in known})
        case GrantOnTables() as statement:
            return _granted(made.before, statement, target, ahead)
        case GrantCreate(names, revoke):
            now = {number: made.before.roles_by_id[number].create for number in _ids(made.before, names)}
            roles = [
                replace(role, create=_given(not revoke, now[role.id], role.create, ahead)) if role.id in now else role
                for role in target.roles
            ]
            return replace(target, roles=tuple(roles))
        case GrantRoles() as statement:
            return _joined(made.before, statement, target, ahead)


def _ids(schema: Schema, names: Iterable[str]) -> set[int]:
    return {schema.role(name).id for name in names}


def _put(schema: Schema, role: Role) -> Schema:
    """Add a role, or replace the one with its id. Raises Clash if another one has its name."""
    same = schema.roles_by_name.get(role.name.lower())
    if same is not None and same.id != role.id:
        raise Clash
    found = {**schema.roles_by_id, role.id: role}
    return replace(schema, roles=tuple(found[number] for number in sorted(found)))


def _created(made: Made, target: Schema) -> Schema:
    fresh = [role for role in made.after.roles if role.id not in made.before.roles_by_id]
    for role in fresh:
        target = _put(target, role)
    return target


def _altered(before: Role, after: Schema, statement: AlterRole, target: Schema, ahead: bool) -> Schema:
    role, now = target.roles_by_id.get(before.id), after.roles_by_id[before.id]
    if role is None:
        return target
    if statement.to:
        if role.name != before.name:
            raise Clash
        return _put(target, replace(role, name=now.name))
    options = statement.options
    login = role.login if options.login is None else _given(options.login, before.login, role.login, ahead)
    superuser = role.superuser
    if options.superuser is not None:
        superuser = _given(options.superuser, before.superuser, role.superuser, ahead)
    verifier = role.verifier if options.password is None else now.verifier
    return _put(target, replace(role, login=login, superuser=superuser, verifier=verifier))


def _given(wanted: bool, now: bool, then: bool, ahead: bool) -> bool:
    """Return what a role is given of something that it has ``now`` or not, and has in the other schema or not."""
    return wanted and not (ahead and now and not then)


def _without(schema: Schema, gone: Collection[int]) -> Schema:
    """Return a schema without some roles, and what they have."""
    roles = [
        replace(role, member_of=tuple(number for number in role.member_of if number not in gone))
        for role in schema.roles
        if role.id not in gone
    ]
    tables = [
        replace(table, grants=tuple(grant for grant in table.grants if grant.role_id not in gone))
        for table in schema.tables
    ]
    return replace(schema, roles=tuple(roles), tables=tuple(tables))


def _granted(before: Schema, statement: GrantOnTables, target: Schema, ahead: bool) -> Schema:
    chosen = granted_tables(before, statement)
    roles = sorted(_ids(before, statement.roles) & target.roles_by_id.keys())
    tables = []
    for table in target.tables:
        now = next((before.by_id[number] for number in sorted(chosen) if _is_form(before.by_id[number], table)), None)
        if now is not None:
            table = _with_grants(now, table, roles, statement, ahead)
        tables.append(table)
    return replace(target, tables=tuple(tables))


def _is_form(now: Table, table: Table) -> bool:
    """Tell whether both are one table, or ``table`` is the form that it is to get: that has not come yet."""
    return now.id in (table.id, table.mirror_of)


def _with_grants(now: Table, table: Table, roles: Sequence[int], statement: GrantOnTables, ahead: bool) -> Table:
    grants = table.grants
    for role_id in roles:
        privileges = statement.privileges
        if ahead and not statement.revoke:
            # What it may do now and not there, the change takes.
            privileges &= ~(_privileges(now, role_id) & ~_privileges(table, role_id))
        grants = merged(grants, role_id, privileges, revoke=statement.revoke)
    return replace(table, grants=grants)


def _privileges(table: Table, role_id: int) -> int:
    return next((grant.privileges for grant in table.grants if grant.role_id == role_id), NO_PRIVILEGE)


def _joined(before: Schema, statement: GrantRoles, target: Schema, ahead: bool) -> Schema:
    granted = _ids(before, statement.granted) & target.roles_by_id.keys()
    for member_id in sorted(_ids(before, statement.roles) & target.roles_by_id.keys()):
        member = target.roles_by_id[member_id]
        had, ids = set(member.member_of), set(granted)
        if not statement.revoke:
            if ahead:
                ids -= set(before.roles_by_id[member_id].member_of) - had
            if any(member_id in with_roles_above(target.roles, number) for number in ids):
                raise Clash
        member_of = tuple(sorted(had - ids if statement.revoke else had | ids))
        target = _put(target, replace(member, member_of=member_of))
    return target
