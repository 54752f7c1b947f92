"""Keys as people write and read them."""

import re

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import KEY_MAX

_NUMBER = re.compile(r"-?\d+")


def parse_key(text: str) -> bytes:
    """Return the key that is written as its elements, ``1/42/abc``, or in hexadecimal, ``0x...``.

    Whole numbers are INT64, everything else is text. Raises INVALID_ARGUMENT.
    """
    if text in ("-inf", "+inf"):
        return KEY_MAX if text == "+inf" else b""
    try:
        if text.startswith("0x"):
            return bytes.fromhex(text[2:])
        if not all(text.split("/")):
            text = f"{text!r} is no key: an element of it is empty; write the table's number and the row's key, as 1/42"
            raise F1Error(Code.INVALID_ARGUMENT, text)
        return tuples.encode(tuple(int(part) if _NUMBER.fullmatch(part) else part for part in text.split("/")))
    except ValueError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"{text!r} is no key: {error}") from error
