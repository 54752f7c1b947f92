"""A small object mapper that cannot hide what it does (F1 section 7.1).

All loading is explicit and says how many round trips it takes: there are no joins, no relations that are followed when
an attribute is touched, no sessions. Several loads go in one round (:func:`load_many`), and all children of an object
are one range read, because their keys begin with its key::

    class Customer(Model, key=["CustomerId"]): ...
    class Campaign(Model, key=["CustomerId", "CampaignId"]): ...

    customer = Customer.get(tx, 7)
    customers, campaigns = load_many(tx, Customer.by_keys([7, 8]), Campaign.by_prefix(7))
    customer.Name = "new name"
    customer.save(tx)

The first parameter is a connection or a transaction, blocking or of :mod:`f1.aio`; the result of one of the latter is
awaited. Columns are attributes, and :meth:`Model.save` writes those that were set.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, ClassVar, Generic, Self, TypeVar

from f1.nosql import Key, Read, keys_of
from f1.results import Row

M = TypeVar("M", bound="Model")
T = TypeVar("T")


class Load(Generic[M]):
    """A read that has not been made yet."""

    def __init__(self, model: type[M], read: Read) -> None:
        self.model = model
        self.read = read

    def of(self, rows: Sequence[Row]) -> list[M]:
        """Return the objects of the rows that the read gave."""
        return [self.model.from_row(row) for row in rows]


class Model:
    """The base of classes whose objects are rows of one table: ``class Customer(Model, key=["CustomerId"])``.

    ``table``: its name, by default that of the class. ``key``: the columns of its primary key. ``columns``: what is
    loaded, by default all columns. Columns are attributes, with their letters as the schema has them.
    """

    table: ClassVar[str] = ""
    key: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(
        cls, *, table: str = "", key: Sequence[str] = (), columns: Sequence[str] | None = None
    ) -> None:
        """Take the names of the table, its key and perhaps of the columns to load."""
        cls.table = table or cls.table or cls.__name__
        cls.key = tuple(key) or cls.key
        if columns is not None:
            cls.columns = tuple(columns)

    def __init__(self, **values: Any) -> None:
        """Make an object that is not stored yet."""
        object.__setattr__(self, "_values", dict(values))
        object.__setattr__(self, "_changed", dict(values))
        object.__setattr__(self, "_loaded", False)

    _values: dict[str, Any]
    _changed: dict[str, Any]
    _loaded: bool

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the object of a stored row."""
        found = cls(**row)
        found._stored(None)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        values: dict[str, Any] = object.__getattribute__(self, "_values")
        if name in values:
            return values[name]
        loaded = ", ".join(values)
        raise AttributeError(f"{type(self).__name__} has no column {name} loaded (it has {loaded})")

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = self._changed[name] = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values == self._values

    __hash__ = None  # type: ignore[assignment]  # objects change

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({values})"

    def to_dict(self) -> dict[str, Any]:
        """Return the values by column."""
        return dict(self._values)

    # ------------------------------------------------------------------------------------------------ loads

    @classmethod
    def by_keys(cls, keys: Any) -> Load[Self]:
        """Return the load of the objects with these keys; one round trip however many."""
        return Load(cls, Read(cls.table, keys_of(keys), cls.columns))

    @classmethod
    def by_prefix(cls, prefix: Key, *, limit: int = 0) -> Load[Self]:
        """Return the load of all objects whose keys begin with ``prefix``: the children of its object."""
        return Load(cls, Read(cls.table, columns=cls.columns, prefixes=[prefix], limit=limit))

    @classmethod
    def by_index(cls, index: str, prefix: Key, *, limit: int = 0) -> Load[Self]:
        """Return the load of all objects whose entries in an index begin with ``prefix``."""
        return Load(cls, Read(cls.table, columns=cls.columns, prefixes=[prefix], index=index, limit=limit))

    @classmethod
    def get(cls, source: Any, key: Key) -> Any:
        """Return the object with a key, None if there is none."""
        return _then(load_many(source, cls.by_keys([key])), lambda found: found[0][0] if found[0] else None)

    @classmethod
    def get_many(cls, source: Any, keys: Iterable[Key]) -> Any:
        """Return the objects with these keys, those that are there, in one round trip."""
        return _then(load_many(source, cls.by_keys(list(keys))), lambda found: found[0])

    @classmethod
    def children(cls, source: Any, parent_key: Key, *, limit: int = 0) -> Any:
        """Return all objects below a parent, in the order of their keys, in one range read."""
        return _then(load_many(source, cls.by_prefix(parent_key, limit=limit)), lambda found: found[0])

    # ------------------------------------------------------------------------------------------------ writes

    def insert(self, target: Any) -> Any:
        """Insert the row, whole."""
        return _then(target.insert(self.table, self._values), self._stored)

    def save(self, target: Any) -> Any:
        """Update the columns that were set since the object was loaded; insert the row of a new object."""
        if not self._loaded:
            return self.insert(target)
        return _then(target.update(self.table, self._key_row() | self._changed), self._stored)

    def delete(self, target: Any) -> Any:
        """Delete the row."""
        return target.delete(self.table, self._key_row())

    def _key_row(self) -> dict[str, Any]:
        if not self.key:
            raise TypeError(f"{type(self).__name__} does not name its key: class ...(Model, key=[...])")
        # By attribute: a column that was not loaded, or has another name by now, is named in the error.
        return {name: getattr(self, name) for name in self.key}

    def _stored(self, _: Any) -> None:
        object.__setattr__(self, "_loaded", True)
        self._changed.clear()


def load_many(source: Any, *loads: Load[Any]) -> Any:
    """Make several loads in one round trip; return a list of objects for each."""

    def objects(results: Sequence[Sequence[Row]]) -> list[list[Any]]:
        return [load.of(rows) for load, rows in zip(loads, results, strict=True)]

    return _then(source.read_many([load.read for load in loads]), objects)


def _then(result: Any, go_on: Callable[[Any], T]) -> T | Awaitable[T]:
    if not isawaitable(result):
        return go_on(result)

    async def later() -> T:
        return go_on(await result)

    return later()
