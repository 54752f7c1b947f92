"""Roles and grants as elements of a schema: grammar, what statements do, sources, and no password anywhere."""

import itertools

import pytest

from f1common.errors import Code, F1Error
from f1common.scram import make_verifier, parse_verifier
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import is_ddl, parse_ddl
from f1server.catalog.render import render_schema
from f1server.catalog.roles import ALL, Privilege
from f1server.catalog.rolestatements import (
    AlterRole,
    CreateRole,
    DropRole,
    GrantCreate,
    GrantOnTables,
    GrantRoles,
    RoleOptions,
    holds_password,
    with_verifier,
)
from f1server.catalog.schema import Schema
from f1server.catalog.statements import CreateDatabase, DropDatabase
from f1server.plan import statements
from f1server.plan.statements import SchemaChangeStatement, parse
from f1server.schemachange.steps.diff import plan_steps
from f1server.schemachange.steps.edits import advance
from f1server.schemachange.steps.sources import Sources

SECRET = "hunter2"
VERIFIER = make_verifier(SECRET, b"0123456789abcdef", 4096).text()
TABLES = "CREATE TABLE T (A INT64 PRIMARY KEY, B STRING); CREATE TABLE U (A INT64 PRIMARY KEY);"
ROLES = "CREATE ROLE reader; CREATE ROLE app LOGIN; CREATE ROLE boss LOGIN SUPERUSER;"
_ids = itertools.count(1000)


def one(sql):
    (statement,) = parse_ddl(sql)
    return statement


def made(sql, schema=None):
    """The schema after some statements, each on its own."""
    schema = schema or Schema("d")
    for statement in parse_ddl(sql):
        assert not isinstance(statement, CreateDatabase | DropDatabase)
        schema = compile_statements(schema, [statement], lambda: next(_ids))
    return schema


def grants(schema, table):
    names = {role.id: role.name for role in schema.roles}
    return {names[g.role_id]: g.privileges for g in schema.table(table).grants}


def stepped(old, new):
    """The schema that the steps from one to the other lead to."""
    for step in plan_steps(old, new):
        old = advance(old, step.edits)
    return old


S, I, U = Privilege.SELECT, Privilege.INSERT, Privilege.UPDATE  # noqa: E741


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("CREATE ROLE r", CreateRole("r")),
        ("create role if not exists r with login", CreateRole("r", RoleOptions(login=True), if_not_exists=True)),
        ("CREATE USER r NOLOGIN SUPERUSER", CreateRole("r", RoleOptions(login=False, superuser=True))),
        ("CREATE USER r", CreateRole("r", RoleOptions(login=True))),
        ("ALTER ROLE r PASSWORD NULL", AlterRole("r", RoleOptions(password=""))),
        ("ALTER USER r NOSUPERUSER", AlterRole("r", RoleOptions(superuser=False))),
        ("ALTER ROLE r RENAME TO s", AlterRole("r", to="s")),
        ("CREATE ROLE r ENCRYPTED PASSWORD 'x'", CreateRole("r", RoleOptions(password="x"))),
        ('DROP ROLE IF EXISTS r, "my role"', DropRole(("r", "my role"), if_exists=True)),
        ("GRANT SELECT ON T TO r", GrantOnTables(S, ("T",), ("r",))),
        ("GRANT select, Insert ON TABLE T, public.U TO r, s", GrantOnTables(S | I, ("T", "U"), ("r", "s"))),
        ("GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA public TO r", GrantOnTables(ALL, (), ("r",))),
        ("REVOKE UPDATE ON ALL TABLES FROM r CASCADE", GrantOnTables(U, (), ("r",), revoke=True)),
        ("GRANT CREATE ON SCHEMA TO r", GrantCreate(("r",))),
        ("REVOKE CREATE ON SCHEMA public FROM r, s", GrantCreate(("r", "s"), revoke=True)),
        ("GRANT reader, writer TO r, s", GrantRoles(("reader", "writer"), ("r", "s"))),
        ("REVOKE reader FROM r", GrantRoles(("reader",), ("r",), revoke=True)),
    ],
)
def test_what_is_read(sql, statement):
    assert one(sql) == statement and is_ddl(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE ROLE", "expected the name of a role"),
        ("CREATE ROLE public", "public is no name for a role"),
        ("CREATE ROLE r FAST", "expected LOGIN, NOLOGIN, SUPERUSER, NOSUPERUSER or PASSWORD"),
        ("ALTER ROLE app", "expected LOGIN"),
        ("GRANT SELECT T TO app", "expected TO and the name of a role"),
        ("GRANT SELECT ON T", "expected TO and the name of a role"),
        ("REVOKE SELECT ON T TO app", "expected FROM and the name of a role"),
        ("GRANT TRUNCATE ON T TO app", "TRUNCATE is no privilege on tables"),
        ("GRANT SELECT (A) ON T TO app", "privileges are on whole tables"),
        ("GRANT SELECT ON T TO PUBLIC", "there is no role of everybody"),
        ("GRANT SELECT ON T TO app WITH GRANT OPTION", "there are no grant options"),
        ("REVOKE GRANT OPTION FOR SELECT ON T FROM app", "there are no grant options"),
        ("GRANT USAGE ON SCHEMA TO app", "the right on a schema is CREATE"),
        ("GRANT SELECT ON Nope TO app", "there is no table Nope"),
        ("GRANT SELECT ON V TO app", "V is a view"),
        ("GRANT SELECT ON T TO apq", "there is no role apq; did you mean app?"),
        ("GRANT app TO app", "circle"),
        ("CREATE ROLE APP", "there is a role APP already"),
        ("ALTER ROLE app RENAME TO Reader", "there is a role Reader already"),
        ("DROP ROLE nope", "there is no role nope"),
    ],
)
def test_mistakes_have_a_place(sql, words):
    schema = made(TABLES + ROLES + "CREATE VIEW V AS SELECT A FROM T")
    with pytest.raises(F1Error) as caught:
        made(sql, schema)
    assert words in caught.value.message and caught.value.details["line"] == "1"


def test_grants_add_up_and_are_revoked_one_by_one():
    schema = made(
        TABLES + ROLES + "GRANT SELECT ON T TO app; GRANT INSERT, UPDATE ON T TO app; GRANT ALL ON U TO reader"
    )
    assert grants(schema, "T") == {"app": S | I | U} and grants(schema, "U") == {"reader": ALL}
    schema = made("REVOKE SELECT, DELETE ON T FROM app; REVOKE ALL ON ALL TABLES FROM reader", schema)
    assert grants(schema, "T") == {"app": I | U} and grants(schema, "U") == {}
    assert schema.table("U").grants == ()


def test_all_tables_are_those_that_are_there():
    schema = made(TABLES + ROLES + "GRANT SELECT ON ALL TABLES TO app; CREATE TABLE W (A INT64 PRIMARY KEY)")
    assert [grants(schema, name) for name in ("T", "U", "W")] == [{"app": S}, {"app": S}, {}]


def test_a_renamed_table_and_a_renamed_role_keep_grants_and_a_dropped_table_loses_them():
    schema = made(TABLES + ROLES + "GRANT SELECT ON T TO app; ALTER TABLE T RENAME TO W; ALTER ROLE app RENAME TO site")
    assert grants(schema, "W") == {"site": S}
    schema = made("DROP TABLE W; CREATE TABLE W (A INT64 PRIMARY KEY)", schema)
    assert grants(schema, "W") == {}


def test_membership_goes_up_over_several_roles_and_never_in_a_circle():
    schema = made(ROLES + "CREATE ROLE top; GRANT top TO reader; GRANT reader TO app")
    for circle in ("GRANT app TO top", "GRANT app TO reader", "GRANT reader TO top"):
        with pytest.raises(F1Error) as caught:
            made(circle, schema)
        assert caught.value.code is Code.INVALID_ARGUMENT
    made("REVOKE reader FROM app; GRANT app TO top", schema)


def test_a_role_with_grants_or_members_is_not_dropped_and_the_error_lists_them():
    schema = made(
        TABLES + ROLES + "GRANT SELECT, INSERT ON T TO reader; GRANT reader TO app; GRANT CREATE ON SCHEMA TO reader"
    )
    with pytest.raises(F1Error) as caught:
        made("DROP ROLE reader", schema)
    assert caught.value.code is Code.FAILED_PRECONDITION
    for reason in ("reader has SELECT, INSERT on T", "reader has CREATE ON SCHEMA", "members of reader: app"):
        assert reason in caught.value.message
    schema = made("REVOKE ALL ON T FROM reader; REVOKE CREATE ON SCHEMA FROM reader; DROP ROLE reader, app", schema)
    assert [role.name for role in schema.roles] == ["boss"]


def test_what_is_stored_and_what_is_shown():
    schema = made(TABLES + ROLES + f"GRANT ALL ON T TO app; GRANT reader TO app; ALTER ROLE app PASSWORD '{VERIFIER}'")
    assert decode_schema(encode_schema(schema)) == schema
    text = render_schema(schema)
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE T TO app;" in text and "CREATE ROLE app LOGIN;" in text
    assert "SCRAM" not in text and "SCRAM" not in repr(schema)


# ---------------------------------------------------------------------- sources


def applied(schema, source):
    return stepped(schema, Sources([("s.sql", source)], []).draft(schema))


def test_sources_that_state_no_roles_leave_them_and_their_grants():
    schema = made(TABLES + ROLES + "GRANT SELECT ON T TO app; GRANT SELECT ON U TO app")
    after = applied(schema, "CREATE TABLE T (A INT64 PRIMARY KEY, B STRING, C INT64)")
    assert after.roles == schema.roles and grants(after, "T") == {"app": S}
    assert [t.name for t in after.tables] == ["T"]


def test_sources_that_state_roles_state_all_of_them_and_keep_passwords():
    schema = made(TABLES + ROLES + f"GRANT ALL ON ALL TABLES TO app; ALTER ROLE app PASSWORD '{VERIFIER}'")
    source = TABLES + "CREATE ROLE app; CREATE ROLE fresh; GRANT fresh TO app; GRANT INSERT ON T TO fresh"
    after = applied(schema, source)
    assert [(r.name, r.login, bool(r.verifier)) for r in after.roles] == [("app", False, True), ("fresh", False, False)]
    assert after.role("app").id == schema.role("app").id
    assert grants(after, "T") == {"fresh": I} and grants(after, "U") == {}
    # What is shown describes the same again.
    assert plan_steps(after, Sources([("s.sql", render_schema(after))], []).draft(after)) == []


def test_sources_hold_verifiers_but_no_passwords():
    schema = made("")
    after = applied(schema, f"CREATE ROLE app PASSWORD '{VERIFIER}'")
    assert after.role("app").verifier == VERIFIER
    with pytest.raises(F1Error) as caught:
        applied(schema, f"CREATE ROLE app PASSWORD '{SECRET}'")
    assert caught.value.code is Code.FAILED_PRECONDITION and SECRET not in str(caught.value)


def test_a_change_of_roles_and_grants_is_one_version_and_can_be_taken_back():
    before = made(TABLES + ROLES)
    after = made("GRANT SELECT ON T TO app; GRANT reader TO app; REVOKE INSERT ON U FROM app", before)
    (step,) = plan_steps(before, after)
    assert step.what == ("alter role app", "set the grants on T: app SELECT")
    assert not step.loses_data and not step.tasks
    there = advance(before, step.edits)
    assert there.roles == after.roles and there.tables == after.tables
    back = stepped(there, before)
    assert (back.roles, back.tables) == (before.roles, before.tables)


# ---------------------------------------------------------------------- passwords


@pytest.mark.parametrize(
    "sql",
    [
        f"CREATE ROLE r PASSWORD '{SECRET}' 'x'",
        f"CREATE ROLE r '{SECRET}'",
        f"CREATE ROLE r {SECRET}",
        f'CREATE ROLE r PASSWORD "{SECRET}"',
        f"CREATE ROLE r PASSWORD {SECRET}",
        f"ALTER ROLE r PASSWRD '{SECRET}'",
        f"ALTER ROLE r PASSWORD 'x' '{SECRET}'",
        f"CREATE ROLE r PASSWORD '{SECRET}",
        f"CREATE ROLE r PASSWORD 'SCRAM-SHA-256${SECRET}'",
        f"CREATE ROLE r PASSWORD '{SECRET}'",
    ],
)
def test_no_error_shows_a_password(sql):
    with pytest.raises(F1Error) as caught:
        made(sql)
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value.details)


def test_no_value_shows_a_password_and_no_statement_with_one_is_kept():
    sql = f"ALTER ROLE r PASSWORD '{SECRET}'"
    (statement,) = parse(sql)
    assert isinstance(statement, SchemaChangeStatement) and holds_password(statement.ddl)
    assert SECRET not in repr(statement) and statement.tag == "ALTER ROLE"
    before = statements._parse_short.cache_info().currsize
    assert parse(sql) is not parse(sql)
    assert statements._parse_short.cache_info().currsize == before
    hashed = with_verifier(statement.ddl, b"0" * 16)
    assert isinstance(hashed, AlterRole) and not holds_password(hashed)
    assert parse_verifier(hashed.options.password or "") == make_verifier(SECRET, b"0" * 16)
