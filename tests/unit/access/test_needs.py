"""What each kind of statement needs: exactly these privileges, each of them, and no others."""

import itertools

import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.access.needs import require_dml, require_query, require_read_set, require_writes
from f1server.access.rights import EVERYBODY, UNLIMITED, Caller, Rights, rights_of
from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.roles import ALL, NO_PRIVILEGE, Privilege
from f1server.catalog.schema import Schema
from f1server.catalog.statements import CreateDatabase, DropDatabase
from f1server.history.table import with_history
from f1server.plan.dml import prepare_dml
from f1server.plan.prepare import prepare
from f1server.plan.statements import DmlStatement, QueryStatement, parse
from f1server.rows.keys import row_key
from f1server.rows.writes import LogicalWrite, WriteKind

SCHEMA = """
CREATE TABLE T (A INT64 NOT NULL, B INT64, PRIMARY KEY (A));
CREATE TABLE Kid (A INT64 NOT NULL, K INT64 NOT NULL, PRIMARY KEY (A, K)) INTERLEAVE IN PARENT T ON DELETE CASCADE;
CREATE TABLE U (A INT64 NOT NULL, B INT64, PRIMARY KEY (A));
CREATE VIEW V AS SELECT T.B FROM T WHERE EXISTS (SELECT 1 FROM U WHERE U.A = T.A);
CREATE VIEW W AS SELECT * FROM V;
"""
_ids = itertools.count(10)


def made(schema: Schema, sql: str) -> Schema:
    statements = [s for s in parse_ddl(sql) if not isinstance(s, CreateDatabase | DropDatabase)]
    return compile_statements(schema, statements, lambda: next(_ids))


PLAIN = made(Schema("d"), SCHEMA)
SHOWN = with_history(PLAIN)

STATEMENTS = {
    "SELECT 1": "",
    "SELECT B FROM T": "T:S",
    "SELECT * FROM T AS x JOIN U ON x.A = U.A": "T:S U:S",
    "SELECT A FROM T WHERE B IN (SELECT B FROM U)": "T:S U:S",
    "SELECT (SELECT max(B) FROM U)": "U:S",
    "SELECT count(*) FROM T": "T:S",
    "WITH c AS (SELECT * FROM U) SELECT * FROM c": "U:S",
    "WITH c AS (SELECT * FROM U) SELECT 1": "U:S",
    "SELECT A FROM T UNION ALL SELECT A FROM U": "T:S U:S",
    "SELECT * FROM T, LATERAL (SELECT B FROM U WHERE U.A = T.A) AS l": "T:S U:S",
    "SELECT * FROM (SELECT A FROM Kid) AS q WHERE false": "Kid:S",
    "TABLE U": "U:S",
    "SELECT * FROM V": "T:S U:S",
    "SELECT * FROM W": "T:S U:S",
    "SELECT A FROM T FOR UPDATE": "T:SU",
    "SELECT key FROM ChangeHistory_T": "T:S",
    "INSERT INTO T VALUES (1, 2)": "T:I",
    "INSERT INTO T SELECT A, B FROM U": "T:I U:S",
    "INSERT INTO T SELECT A + 1, B FROM T": "T:SI",
    "INSERT INTO T VALUES (1, (SELECT max(B) FROM U))": "T:I U:S",
    "WITH c AS (SELECT * FROM U) INSERT INTO T SELECT * FROM c": "T:I U:S",
    "INSERT INTO T VALUES (1, 2) RETURNING B": "T:SI",
    "INSERT INTO T VALUES (1, 2) RETURNING (SELECT max(B) FROM U)": "T:SI U:S",
    "INSERT INTO T VALUES (1, 2) ON CONFLICT DO NOTHING": "T:I",
    "INSERT INTO T VALUES (1, 2) ON CONFLICT (A) DO UPDATE SET B = 3": "T:SIU",
    "INSERT INTO T VALUES (1, 2) ON CONFLICT (A) DO UPDATE SET B = (SELECT max(B) FROM U)": "T:SIU U:S",
    "INSERT OR UPDATE INTO T VALUES (1, 2)": "T:IU",
    "UPSERT INTO T VALUES (1, 2)": "T:IU",
    "UPDATE T SET B = 1": "T:U",
    "UPDATE T SET B = DEFAULT": "T:U",
    "UPDATE T SET B = 1 WHERE A = 1": "T:SU",
    "UPDATE T SET B = B + 1": "T:SU",
    "UPDATE T SET B = 1 RETURNING A": "T:SU",
    "UPDATE T SET B = (SELECT max(B) FROM U)": "T:SU U:S",
    "UPDATE T SET B = (SELECT count(*) FROM T)": "T:SU",
    "UPDATE T SET B = (SELECT count(*) FROM U)": "T:U U:S",
    "UPDATE T SET B = U.B FROM U WHERE U.A = T.A": "T:SU U:S",
    "UPDATE T SET B = 1 FROM T AS other": "T:SU",
    "DELETE FROM T": "T:D",
    "DELETE FROM T WHERE B = 1": "T:SD",
    "DELETE FROM T USING U WHERE U.A = T.A": "T:SD U:S",
    "DELETE FROM T WHERE EXISTS (SELECT 1 FROM U)": "T:SD U:S",
    "DELETE FROM T RETURNING B": "T:SD",
    "WITH c AS (SELECT A FROM U) DELETE FROM T WHERE A IN (SELECT A FROM c)": "T:SD U:S",
}
_LETTERS = {"S": Privilege.SELECT, "I": Privilege.INSERT, "U": Privilege.UPDATE, "D": Privilege.DELETE}


def wanted(text: str) -> dict[str, Privilege]:
    found: dict[str, Privilege] = {}
    for item in text.split():
        name, _, letters = item.partition(":")
        found[name] = NO_PRIVILEGE
        for letter in letters:
            found[name] |= _LETTERS[letter]
    return found


def role(privileges: dict[str, Privilege]) -> Rights:
    tables = {PLAIN.table(name).id: what for name, what in privileges.items()}
    return Rights("app", 7, unlimited=False, create=False, tables=tables)


def require(rights: Rights, sql: str) -> None:
    (statement,) = parse(sql)
    if isinstance(statement, DmlStatement):
        require_dml(rights, statement, prepare_dml(SHOWN, statement))
    else:
        assert isinstance(statement, QueryStatement)
        require_query(rights, prepare(SHOWN, statement.sql, statement.ast.copy()))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_statement_needs_each_of_these_privileges_and_no_others(sql: str) -> None:
    needs = wanted(STATEMENTS[sql])
    require(role(needs), sql)
    require(UNLIMITED, sql)
    for name, what in needs.items():
        for one in Privilege:
            if one not in what:
                continue
            # Everything but this one.
            fewer = dict.fromkeys(("T", "Kid", "U"), ALL) | {name: ALL & ~one}
            with pytest.raises(F1Error) as caught:
                require(role(fewer), sql)
            assert caught.value.code is Code.PERMISSION_DENIED
            assert f"the role app lacks {one.name} on " in caught.value.message
            assert caught.value.details["privilege"] == one.name


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        *((WriteKind.INSERT, Privilege.INSERT), (WriteKind.UPDATE, Privilege.UPDATE)),
        *((WriteKind.DELETE, Privilege.DELETE), (WriteKind.UPSERT, Privilege.INSERT | Privilege.UPDATE)),
    ],
)
def test_a_write_needs_the_privilege_of_its_kind(kind: WriteKind, needs: Privilege) -> None:
    write = LogicalWrite(kind, "t", {1: 1})
    require_writes(role({"T": needs}), PLAIN, [write])
    for one in Privilege:
        if one in needs:
            with pytest.raises(F1Error) as caught:
                require_writes(role({"T": ALL & ~one, "U": ALL}), PLAIN, [write])
            assert caught.value.code is Code.PERMISSION_DENIED


def test_a_read_set_tells_of_rows_of_tables_that_the_role_has_to_do_with() -> None:
    keys = [row_key(PLAIN, PLAIN.table("T"), (1,))]
    for one in Privilege:
        require_read_set(role({"T": one}), PLAIN, keys)
    with pytest.raises(F1Error) as caught:
        require_read_set(role({"U": ALL}), PLAIN, keys)
    assert caught.value.code is Code.PERMISSION_DENIED
    with pytest.raises(F1Error) as caught:
        require_read_set(role({"T": ALL}), PLAIN, [tuples.encode((1 << 40,))])
    assert caught.value.code is Code.INVALID_ARGUMENT


DDL = {
    "CREATE TABLE X (A INT64 PRIMARY KEY)": "create",
    "ALTER TABLE T ADD COLUMN C INT64": "create",
    "DROP TABLE T": "create",
    "CREATE INDEX I ON T (B)": "create",
    "DROP VIEW V": "create",
    "GRANT SELECT ON T TO app": "create",
    "REVOKE SELECT ON T FROM app": "create",
    "ALTER ROLE app PASSWORD 'x'": "nothing",
    "ALTER ROLE App PASSWORD NULL": "nothing",
    "ALTER ROLE app PASSWORD 'x' SUPERUSER": "superuser",
    "ALTER ROLE other PASSWORD 'x'": "superuser",
    "ALTER ROLE app RENAME TO b": "superuser",
    "CREATE ROLE x": "superuser",
    "DROP ROLE other": "superuser",
    "GRANT other TO app": "superuser",
    "GRANT CREATE ON SCHEMA TO app": "superuser",
    "CREATE DATABASE x": "superuser",
    "DROP DATABASE x": "superuser",
}


@pytest.mark.parametrize("sql", DDL)
def test_who_may_change_the_schema(sql: str) -> None:
    found = "superuser"
    for name, rights in {"nothing": Rights("app", 7, False, False), "create": Rights("app", 7, False, True)}.items():
        try:
            rights.require_ddl(parse_ddl(sql))
        except F1Error as error:
            assert error.code is Code.PERMISSION_DENIED
        else:
            found = name
            break
    assert found == DDL[sql]
    Rights("boss", 8, True, True).require_ddl(parse_ddl(sql))


def test_nobody_drops_the_own_role() -> None:
    for rights in (Rights("app", 7, False, True), Rights("app", 7, True, True)):
        with pytest.raises(F1Error) as caught:
            rights.require_ddl(parse_ddl("DROP ROLE other, App"))
        assert caught.value.code is Code.FAILED_PRECONDITION
    UNLIMITED.require_ddl(parse_ddl("DROP ROLE f1"))


def test_rights_come_by_membership_but_not_that_of_superusers() -> None:
    sql = "CREATE ROLE top SUPERUSER; CREATE ROLE mid; CREATE ROLE app; GRANT top TO mid; GRANT mid TO app;"
    sql += "GRANT SELECT ON T TO top; GRANT INSERT ON T TO mid; GRANT CREATE ON SCHEMA TO mid"
    schema = made(PLAIN, sql)
    rights = rights_of(schema, Caller(schema.role("app").id, "app"))
    assert not rights.unlimited and rights.create
    assert rights.tables == {schema.table("T").id: Privilege.SELECT | Privilege.INSERT}
    assert rights_of(schema, Caller(schema.role("top").id, "top")).unlimited
    assert rights_of(schema, EVERYBODY) is UNLIMITED
    with pytest.raises(F1Error) as caught:
        rights_of(PLAIN, Caller(schema.role("app").id, "app"))
    assert caught.value.code is Code.UNAUTHENTICATED
