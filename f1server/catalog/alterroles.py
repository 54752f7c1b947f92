"""Statements about roles, applied to a schema."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from f1common.errors import Code
from f1common.scram import parse_verifier
from f1server.catalog.ids import NewId
from f1server.catalog.position import Position
from f1server.catalog.roles import ALL, Role, merged, names_of, with_roles_above
from f1server.catalog.rolestatements import (
    AlterRole,
    CreateRole,
    DropRole,
    GrantCreate,
    GrantOnTables,
    GrantRoles,
    RoleOptions,
    RoleStatement,
)
from f1server.catalog.schema import Schema
from f1server.catalog.tables import located

__all__ = ["alter_roles", "granted_tables", "with_creator", "with_roles_of", "with_stated_roles", "without_secrets"]

_MOST_ROLES = 10_000
_RESERVED = frozenset({"public", "none", "all"})


def alter_roles(schema: Schema, statement: RoleStatement, new_id: NewId) -> Schema:
    """Return a schema after a statement about roles.

    Raises F1Error ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION, with the place in the source.
    """
    match statement:
        case CreateRole():
            return _create(schema, statement, new_id)
        case AlterRole():
            return _alter(schema, statement)
        case DropRole():
            return _drop(schema, statement)
        case GrantOnTables():
            return _grant_on_tables(schema, statement)
        case GrantCreate(names, revoke, at):
            return _put(schema, (replace(role, create=not revoke) for role in _roles(schema, names, at)))
        case GrantRoles():
            return _grant_roles(schema, statement)


def _create(schema: Schema, statement: CreateRole, new_id: NewId) -> Schema:
    if statement.name.lower() in schema.roles_by_name:
        if statement.if_not_exists:
            return schema
        raise statement.at.error(Code.ALREADY_EXISTS, f"there is a role {statement.name} already")
    _check_name(statement.name, statement.at)
    if len(schema.roles) >= _MOST_ROLES:
        raise statement.at.error(Code.FAILED_PRECONDITION, f"a database has at most {_MOST_ROLES} roles")
    return _put(schema, [_with_options(Role(new_id(), statement.name), statement.options, statement.at)])


def _alter(schema: Schema, statement: AlterRole) -> Schema:
    role = located(statement.at, lambda: schema.role(statement.name))
    if statement.to:
        if statement.to.lower() != role.name.lower() and statement.to.lower() in schema.roles_by_name:
            raise statement.at.error(Code.ALREADY_EXISTS, f"there is a role {statement.to} already")
        _check_name(statement.to, statement.at)
        return _put(schema, [replace(role, name=statement.to)])
    return _put(schema, [_with_options(role, statement.options, statement.at)])


def _with_options(role: Role, options: RoleOptions, at: Position) -> Role:
    if options.names_password:
        raise at.error(
            Code.FAILED_PRECONDITION,
            "passwords do not stand in schema sources: leave PASSWORD out, which keeps the role's password, and set it "
            "with ALTER ROLE in SQL; or write the verifier",
        )
    if options.password:
        located(at, lambda: parse_verifier(options.password or ""))
    return replace(
        role,
        login=role.login if options.login is None else options.login,
        superuser=role.superuser if options.superuser is None else options.superuser,
        verifier=role.verifier if options.password is None else options.password,
    )


def _drop(schema: Schema, statement: DropRole) -> Schema:
    going = {}
    for name in statement.names:
        if name.lower() in schema.roles_by_name or not statement.if_exists:
            role = located(statement.at, lambda name=name: schema.role(name))  # type: ignore[misc]
            going[role.id] = role
    reasons = [reason for role in going.values() for reason in _dependents(schema, role, going.keys())]
    if reasons:
        text = "; ".join(reasons)
        raise statement.at.error(
            Code.FAILED_PRECONDITION, f"{', '.join(r.name for r in going.values())} cannot be dropped: {text}"
        )
    return replace(schema, roles=tuple(role for role in schema.roles if role.id not in going))


def _dependents(schema: Schema, role: Role, going: Iterable[int]) -> list[str]:
    """Return what a role still has, as a person would revoke it."""
    reasons = []
    for table in schema.tables:
        for grant in table.grants:
            if grant.role_id == role.id:
                reasons.append(f"{role.name} has {', '.join(names_of(grant.privileges))} on {table.name}")
    if role.create:
        reasons.append(f"{role.name} has CREATE ON SCHEMA")
    members = [r.name for r in schema.roles if role.id in r.member_of and r.id not in going]
    if members:
        reasons.append(f"members of {role.name}: {', '.join(members)}")
    return reasons


def granted_tables(schema: Schema, statement: GrantOnTables) -> set[int]:
    """Return the ids of the tables that a statement is about. Raises F1Error as :func:`alter_roles`.

    By name: a table that is moving has two forms, and whoever reads the past may read the other one. ALL TABLES are
    those that anybody can name, and of REVOKE also those that are coming or going: a change that is taken back makes
    them public again.
    """
    at = statement.at
    for name in statement.tables:
        if name.lower() in schema.views_by_name:
            raise at.error(
                Code.INVALID_ARGUMENT, f"{name} is a view: who reads it needs SELECT on the tables that it reads"
            )
    named = [located(at, lambda name=name: schema.table(name)) for name in statement.tables]  # type: ignore[misc]
    there = schema.tables if statement.revoke else schema.by_name.values()
    chosen = {table.name.lower() for table in (named or there)}
    return {table.id for table in schema.tables if table.name.lower() in chosen}


def _grant_on_tables(schema: Schema, statement: GrantOnTables) -> Schema:
    roles = _roles(schema, statement.roles, statement.at)
    chosen = granted_tables(schema, statement)
    tables = []
    for table in schema.tables:
        if table.id in chosen:
            grants = table.grants
            for role in roles:
                grants = merged(grants, role.id, statement.privileges, revoke=statement.revoke)
            table = replace(table, grants=grants)
        tables.append(table)
    return replace(schema, tables=tuple(tables))


def _grant_roles(schema: Schema, statement: GrantRoles) -> Schema:
    granted = _roles(schema, statement.granted, statement.at)
    for member in _roles(schema, statement.roles, statement.at):
        for role in granted:
            if not statement.revoke and member.id in with_roles_above(schema.roles, role.id):
                raise statement.at.error(
                    Code.INVALID_ARGUMENT, f"{role.name} is {member.name} or a member of it: that would be a circle"
                )
        ids = {role.id for role in granted}
        had = set(schema.roles_by_name[member.name.lower()].member_of)
        member_of = tuple(sorted(had - ids if statement.revoke else had | ids))
        schema = _put(schema, [replace(schema.roles_by_name[member.name.lower()], member_of=member_of)])
    return schema


def _roles(schema: Schema, names: Sequence[str], at: Position) -> list[Role]:
    return [located(at, lambda name=name: schema.role(name)) for name in names]  # type: ignore[misc]


def _put(schema: Schema, roles: Iterable[Role]) -> Schema:
    """Add roles, or replace those with their ids."""
    found = {role.id: role for role in schema.roles} | {role.id: role for role in roles}
    return replace(schema, roles=tuple(found[number] for number in sorted(found)))


def _check_name(name: str, at: Position) -> None:
    if name.lower() in _RESERVED:
        raise at.error(Code.INVALID_ARGUMENT, f"{name} is no name for a role")


# ---------------------------------------------------------------------- what comes with other changes


def with_creator(before: Schema, after: Schema, role_id: int) -> Schema:
    """Give whoever creates tables all privileges on them; 0: nobody needs any."""
    if not role_id:
        return after
    fresh = {table.id for table in after.tables} - {table.id for table in before.tables}
    tables = tuple(
        replace(table, grants=merged(table.grants, role_id, ALL)) if table.id in fresh else table
        for table in after.tables
    )
    return replace(after, tables=tables)


def with_roles_of(old: Schema, wanted: Schema) -> Schema:
    """Return what sources describe that say nothing about roles: these stay, and what they may do with what stays."""
    grants = {table.id: table.grants for table in old.tables}
    tables = tuple(replace(table, grants=grants.get(table.id, ())) for table in wanted.tables)
    return replace(wanted, roles=old.roles, tables=tables)


def with_stated_roles(old: Schema, wanted: Schema, new_id: NewId) -> Schema:
    """Return what sources describe that state all roles, whose ids are those of ``old`` where the names are the same.

    A role keeps its password unless a verifier is stated.
    """
    ids: dict[int, int] = {}
    for role in wanted.roles:
        same = old.roles_by_name.get(role.name.lower())
        ids[role.id] = same.id if same is not None else new_id()
    known = {role.id: role for role in old.roles}
    roles = [
        replace(
            role,
            id=ids[role.id],
            verifier=role.verifier or (known[ids[role.id]].verifier if ids[role.id] in known else ""),
            member_of=tuple(sorted(ids[number] for number in role.member_of)),
        )
        for role in wanted.roles
    ]
    tables = []
    for table in wanted.tables:
        moved = sorted((replace(g, role_id=ids[g.role_id]) for g in table.grants), key=lambda g: g.role_id)
        tables.append(replace(table, grants=tuple(moved)))
    return replace(wanted, roles=tuple(sorted(roles, key=lambda r: r.id)), tables=tuple(tables))


def without_secrets(schema: Schema) -> Schema:
    """Return a schema as it may be shown: without verifiers."""
    return replace(schema, roles=tuple(replace(role, verifier="") for role in schema.roles))
