"""Statements about roles made in another schema too: as if compiled there, as far as that has the elements."""

import random
from dataclasses import replace

import pytest

from f1common.errors import F1Error
from f1server.catalog.alterroles import alter_roles
from f1server.catalog.carriedroles import Clash, Made, carried, same_elements
from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.roles import Privilege, with_roles_above
from f1server.catalog.schema import ElementState, Schema

NAMES = ("a", "b", "c", "d")
TABLES = "CREATE TABLE t (k INT64 PRIMARY KEY); CREATE TABLE u (k INT64 PRIMARY KEY); "
ROLES = "CREATE ROLE a; CREATE ROLE b; CREATE ROLE c; "


class Ids:
    def __init__(self):
        self.next = 100

    def __call__(self):
        self.next += 1
        return self.next


def schema(text, ids, start=None):
    return compile_statements(start or Schema("d", version=1), parse_ddl(text), ids)


def made(text, before, ids):
    found = []
    for statement in parse_ddl(text):
        after = alter_roles(before, statement, ids)
        found.append(Made(statement, before, after))
        before = after
    return found


def statement(rng):
    role, other = rng.sample(NAMES, 2)
    revoke = rng.random() < 0.5
    to, verb = ("FROM", "REVOKE") if revoke else ("TO", "GRANT")
    privileges = rng.choice(["SELECT", "INSERT, UPDATE", "ALL", "DELETE"])
    return rng.choice(
        [
            f"{verb} {privileges} ON {rng.choice(['t', 'u', 'ALL TABLES', 't, u'])} {to} {role}",
            f"{verb} {privileges} ON t {to} {role}, {other}",
            f"{verb} CREATE ON SCHEMA {to} {role}",
            f"{verb} {other} {to} {role}",
            f"ALTER ROLE {role} {rng.choice(['LOGIN', 'NOLOGIN', 'SUPERUSER', 'NOSUPERUSER'])}",
            f"ALTER ROLE {role} RENAME TO {rng.choice([other, 'e'])}",
            f"CREATE ROLE IF NOT EXISTS {role}",
            f"DROP ROLE IF EXISTS {role}",
        ]
    )


def scrambled(rng, start, ids, count):
    """Return a schema after some statements, those that can be made."""
    for _ in range(count):
        try:
            start = schema(statement(rng), ids, start)
        except F1Error:
            continue
    return start


def test_where_a_change_is_that_has_done_all_about_roles_the_result_is_the_same():
    """By the dumb way: the statements are compiled there."""
    rng, ids, compared = random.Random(1), Ids(), 0
    for _ in range(150):
        now = scrambled(rng, schema(TABLES + ROLES, ids), ids, 6)
        try:
            statements = made("; ".join(statement(rng) for _ in range(rng.randint(1, 3))), now, ids)
        except F1Error:
            continue
        for ahead in (False, True):
            assert carried(statements, now, ahead=ahead) == statements[-1].after
        compared += 1
    assert compared > 40


def test_in_the_schema_of_before_the_result_is_what_the_statement_makes_of_it():
    """If it can be compiled there at all, and names are the same roles in both."""
    rng, ids, compared = random.Random(2), Ids(), 0
    for _ in range(800):
        base = scrambled(rng, schema(TABLES + ROLES, ids), ids, 5)
        now = scrambled(rng, base, ids, 5)
        text = statement(rng)
        try:
            (one,) = made(text, now, ids)
            there = alter_roles(base, one.statement, ids)
        except F1Error:
            continue
        if "DROP" in text or {(r.id, r.name) for r in base.roles} != {(r.id, r.name) for r in now.roles}:
            continue
        if "CREATE ROLE" in text:
            continue  # it gets other ids
        assert carried([one], base, ahead=False) == there, text
        compared += 1
    assert compared > 50


def test_whatever_is_carried_over_leaves_a_schema_that_makes_sense():
    rng, ids, clashes = random.Random(3), Ids(), 0
    for _ in range(500):
        start = schema(TABLES + ROLES, ids)
        now, target = scrambled(rng, start, ids, 6), scrambled(rng, start, ids, 6)
        try:
            statements = made("; ".join(statement(rng) for _ in range(rng.randint(1, 4))), now, ids)
        except F1Error:
            continue
        try:
            found = carried(statements, target, ahead=rng.random() < 0.5)
        except Clash:
            clashes += 1
            continue
        known = {role.id for role in found.roles}
        assert len({role.name for role in found.roles}) == len(known)
        assert all(grant.role_id in known and grant.privileges for table in found.tables for grant in table.grants)
        for role in found.roles:
            assert set(role.member_of) <= known
            assert all(role.id not in with_roles_above(found.roles, above) for above in role.member_of)
        assert same_elements(found, target)
    assert clashes > 3


@pytest.mark.parametrize(
    ("before", "statement", "there", "privileges", "ahead"),
    [
        ("GRANT SELECT ON t TO a", "GRANT SELECT ON t TO a", "", 0, True),  # the change takes it
        ("", "REVOKE SELECT ON t FROM a", "GRANT SELECT ON t TO a", 0, True),  # the change gives it
        ("GRANT SELECT ON t TO a", "GRANT SELECT, DELETE ON t TO a", "", Privilege.DELETE, True),
        ("", "GRANT DELETE ON t TO a", "GRANT SELECT ON t TO a", Privilege.DELETE | Privilege.SELECT, True),
        ("GRANT SELECT ON t TO a", "GRANT SELECT ON t TO a", "", Privilege.SELECT, False),
        ("", "REVOKE SELECT ON t FROM a", "GRANT SELECT ON t TO a", 0, False),
    ],
)
def test_what_the_change_is_going_to_take_is_taken_and_what_is_revoked_is_not_given(
    before, statement, there, privileges, ahead
):
    ids = Ids()
    start = schema(TABLES + ROLES, ids)
    now, target = schema(before, ids, start), schema(there, ids, start)
    found = carried(made(statement, now, ids), target, ahead=ahead)
    (table,) = [table for table in found.tables if table.name == "t"]
    assert sum(grant.privileges for grant in table.grants) == privileges


def test_a_superuser_or_login_or_creator_is_not_made_where_the_change_takes_that():
    ids = Ids()
    start = schema(TABLES + ROLES, ids)
    now = schema("ALTER ROLE a SUPERUSER LOGIN; GRANT CREATE ON SCHEMA TO a; GRANT b TO a", ids, start)
    statements = made("ALTER ROLE a SUPERUSER LOGIN; GRANT CREATE ON SCHEMA TO a; GRANT b TO a", now, ids)
    role = carried(statements, start, ahead=True).role("a")
    assert (role.superuser, role.login, role.create, role.member_of) == (False, False, False, ())
    role = carried(statements, start, ahead=False).role("a")
    assert (role.superuser, role.login, role.create) == (True, True, True) and role.member_of


@pytest.mark.parametrize(
    ("there", "statement"),
    [
        ("CREATE ROLE e", "CREATE ROLE e"),
        ("CREATE ROLE e", "ALTER ROLE a RENAME TO e"),
        ("ALTER ROLE a RENAME TO f", "ALTER ROLE a RENAME TO e"),
        ("GRANT b TO a", "GRANT a TO b"),
        ("GRANT b TO c; GRANT c TO a", "GRANT a TO b"),
    ],
)
def test_what_cannot_be_there_clashes(there, statement):
    ids = Ids()
    start = schema(TABLES + ROLES, ids)
    with pytest.raises(Clash):
        carried(made(statement, start, ids), schema(there, ids, start), ahead=True)


def test_a_table_that_is_to_get_another_form_has_the_rights_there():
    ids = Ids()
    start = schema(TABLES + ROLES, ids)
    table = start.table("t")
    goal = replace(start, tables=(replace(table, id=77, mirror_of=table.id), start.table("u")))
    found = carried(made("GRANT SELECT ON t TO a; GRANT DELETE ON u TO a", start, ids), goal, ahead=True)
    assert [[grant.privileges for grant in t.grants] for t in found.tables] == [[Privilege.SELECT], [Privilege.DELETE]]


def test_schemas_with_other_states_or_definitions_have_other_elements():
    ids = Ids()
    start = schema(TABLES + ROLES, ids)
    assert same_elements(start, replace(schema("GRANT a TO b; GRANT ALL ON t TO c", ids, start), version=9))
    table = start.table("t")
    for other in (replace(table, state=ElementState.WRITE_ONLY), replace(table, cascade=True)):
        assert not same_elements(start, replace(start, tables=(other, start.table("u"))))
