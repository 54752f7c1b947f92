"""What a key of the configuration may hold, in words: for its reference in the manual and for errors."""

import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
ADDRESS_OR_NONE = r"^(.+:[0-9]{1,5})?$"


def bad_value(key: str, value: object, kind: object, origin: str, error: msgspec.ValidationError) -> str:
    """Say what is wrong with the value of a key, and what it may be."""
    # For lists msgspec tells where inside the value; for single values the permitted range says more than it does.
    _, inside, place = str(error).partition(" - at `$")
    detail = f" ({error})" if inside and place != "`" else ""
    return f"{key} = {value!r} (from {origin}): expected {permitted(kind)}{detail}"


def _annotation(kind: Any) -> tuple[Any, Meta]:
    """Split an annotated type into the type and its constraints."""
    if typing.get_origin(kind) is Annotated:
        base, meta = typing.get_args(kind)
        return base, meta
    return kind, Meta()


def is_text(kind: Any) -> bool:
    """Tell whether a key holds text, which may be written without quotes."""
    base, _ = _annotation(kind)
    return base is str or typing.get_origin(base) is Literal


def permitted(kind: Any) -> str:
    """Say in words what a key may hold."""
    base, meta = _annotation(kind)
    if typing.get_origin(base) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(base))
    if base is int:
        return f"an integer from {meta.ge} to {meta.le}"
    if typing.get_origin(base) is tuple:
        item = typing.get_args(base)[0]
        return "a list of {" + ", ".join(field.name for field in msgspec.structs.fields(item)) + "}"
    if meta.pattern == ADDRESS_OR_NONE:
        return "`host:port` or empty"
    if meta.pattern == NAME:
        return "a name of letters, digits, '.', '_' and '-'"
    return "text, not empty"


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    return f"`{field.default}`" if isinstance(field.default, int) else f'`"{field.default}"`'


def reference_markdown(sections: Mapping[str, type[Struct]]) -> str:
    """Return the reference of all keys of ``sections``, as it stands in ``docs/config.md``."""
    lines: list[str] = []
    for name, kind in sections.items():
        lines += (f"## `[{name}]`", "", (kind.__doc__ or "").strip(), "")
        lines += ("| key | default | permitted | meaning |", "|---|---|---|---|")
        for field in msgspec.structs.fields(kind):
            _, meta = _annotation(field.type)
            lines.append(f"| `{field.name}` | {_default(field)} | {permitted(field.type)} | {meta.description} |")
        lines.append("")
    return "\n".join(lines)
