"""Small structures with one element that changes, for each kind of element."""

from f1server.schemachange.model.schema import Column, Element, Index, Reference, Structure, Table, Unique

A = Column("A")
Q = Column("Q", required=True)

TABLE: tuple[Structure, Element] = Structure((Table("R", (A,), (Index("I", ("A",)),)),)), ("R", "")
OPTIONAL: tuple[Structure, Element] = Structure((Table("R", (A, Column("B"))),)), ("R", "B")
REQUIRED: tuple[Structure, Element] = Structure((Table("R", (A, Q)),)), ("R", "Q")
INDEX: tuple[Structure, Element] = Structure((Table("R", (A,), (Index("I", ("A",)),)),)), ("R", "I")
INDEXED: tuple[Structure, Element] = Structure((Table("R", (Q,), (Index("I", ("Q",)),)),)), ("R", "I")
UNIQUE: tuple[Structure, Element] = Structure((Table("R", (A,), (), (Unique("U", ("A",)),)),)), ("R", "U")
REFERENCE: tuple[Structure, Element] = (
    Structure((Table("R", (A,), (), (Reference("F", "A", "T"),)), Table("T"))),
    ("R", "F"),
)
TO_ITSELF: tuple[Structure, Element] = Structure((Table("R", (A,), (), (Reference("F", "A", "R"),)),)), ("R", "F")

STRUCTURAL_OPTIONAL = {"table": TABLE, "optional column": OPTIONAL}
STRUCTURAL_REQUIRED = {"required column": REQUIRED, "index": INDEX, "index of a required column": INDEXED}
CONSTRAINTS = {"unique": UNIQUE, "foreign key": REFERENCE, "foreign key to its own table": TO_ITSELF}
ALL = {**STRUCTURAL_OPTIONAL, **STRUCTURAL_REQUIRED, **CONSTRAINTS}
