"""What a key of the configuration may hold, in words: for messages and for ``docs/config.md``."""

import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from f1common.errors import Code, F1Error

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
ADDRESS_OR_NONE = r"^(.+:[0-9]{1,5})?$"


def relate(*relations: tuple[str, bool]) -> None:
    """Raise F1Error INVALID_ARGUMENT with the messages of all relations that do not hold."""
    broken = [message for message, holds in relations if not holds]
    if broken:
        raise F1Error(Code.INVALID_ARGUMENT, "; ".join(broken))


def annotation_of(kind: Any) -> tuple[Any, Meta]:
    """Split an annotated type into the type and its constraints."""
    if typing.get_origin(kind) is Annotated:
        base, meta = typing.get_args(kind)
        return base, meta
    return kind, Meta()


def is_text(kind: Any) -> bool:
    """Tell whether values of a type are written as they are."""
    base, _ = annotation_of(kind)
    return base is str or typing.get_origin(base) is Literal


def permitted_text(kind: Any) -> str:
    """Say in words what a key may hold."""
    base, meta = annotation_of(kind)
    if typing.get_origin(base) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(base))
    if base is bool:
        return "`true` or `false`"
    if base is int:
        return f"an integer from {meta.ge} to {meta.le}"
    if typing.get_origin(base) is tuple:
        item = typing.get_args(base)[0]
        if item is str:
            return "a list of texts"
        return "a list of {" + ", ".join(field.name for field in msgspec.structs.fields(item)) + "}"
    if meta.pattern == ADDRESS_OR_NONE:
        return "`host:port` or empty"
    if meta.pattern == NAME:
        return "a name of letters, digits, '.', '_' and '-'"
    return "text, not empty"


def default_text(field: FieldInfo) -> str:
    """Say in words what a key has without a value."""
    if field.required:
        return "required"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if field.default == ():
        return "`[]`"
    return f"`{field.default}`" if isinstance(field.default, int) else f'`"{field.default}"`'


def bad_value_text(key: str, value: object, kind: object, origin: str, error: msgspec.ValidationError) -> str:
    """Say what is wrong with the value of a key, and what it may hold."""
    # For lists msgspec tells where inside the value; for single values the permitted range says more than it does.
    _, inside, place = str(error).partition(" - at `$")
    detail = f" ({error})" if inside and place != "`" else ""
    return f"{key} = {value!r} (from {origin}): expected {permitted_text(kind)}{detail}"


def reference_markdown(sections: Mapping[str, type[Struct]]) -> str:
    """Return the reference of all keys of ``sections``, as it stands in ``docs/config.md``."""
    lines: list[str] = []
    for name, kind in sections.items():
        lines += (f"## `[{name}]`", "", (kind.__doc__ or "").strip(), "")
        lines += ("| key | default | permitted | meaning |", "|---|---|---|---|")
        for field in msgspec.structs.fields(kind):
            _, meta = annotation_of(field.type)
            lines.append(
                f"| `{field.name}` | {default_text(field)} | {permitted_text(field.type)} | {meta.description} |"
            )
        lines.append("")
    return "\n".join(lines)
