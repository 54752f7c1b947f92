"""Dates and timestamps from text, as PostgreSQL reads ISO 8601, in UTC."""

import re

from f1common.encoding.values import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Date, Timestamp
from f1common.errors import Code, F1Error

_DATE = re.compile(r"(?:(\d{4,7})-(\d{1,2})-(\d{1,2})|(\d{4})(\d\d)(\d\d))(?: *(BC|\(BC\)))?", re.IGNORECASE)
_TIME = re.compile(
    r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d*))?)?\s*(?:(Z|UTC|GMT)|([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?)?",
    re.IGNORECASE,
)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_US = 86_400_000_000


def parse_date(text: str) -> Date:
    """Read ``2024-02-29``, ``20240229`` or either with `` BC``. Raises INVALID_ARGUMENT, OUT_OF_RANGE."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise F1Error(Code.INVALID_ARGUMENT, f"{_shown(text)} is no date (YYYY-MM-DD)")
    return Date(_days(match, text))


def parse_timestamp(text: str) -> Timestamp:
    """Read a date, or a date and a time with an optional offset (UTC without one). Raises as :func:`parse_date`."""
    stripped = text.strip()
    bc = re.search(r"\s*(?:BC|\(BC\))$", stripped, re.IGNORECASE)
    body = stripped[: bc.start()] if bc else stripped
    day, _, clock = body.replace("T", " ").replace("t", " ").partition(" ")
    match = _DATE.fullmatch(day + (" BC" if bc else ""))
    time = _TIME.fullmatch(clock.strip()) if clock.strip() else None
    if match is None or (clock.strip() and time is None):
        raise F1Error(Code.INVALID_ARGUMENT, f"{_shown(text)} is no timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][+HH:MM])")
    us = _days(match, text) * _DAY_US + (_time_us(time, text) if time else 0)
    if not TIMESTAMP_MIN <= us <= TIMESTAMP_MAX:
        raise F1Error(Code.OUT_OF_RANGE, f"timestamp {_shown(text)} is out of range")
    return Timestamp(us)


def _days(match: re.Match[str], text: str) -> int:
    year, month, day = (int(part) for part in (match[1] or match[4], match[2] or match[5], match[3] or match[6]))
    if match[7]:
        year = 1 - year  # 1 BC is the year 0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if (
        not 1 <= month <= 12
        or not 1 <= day <= _LENGTHS[month - 1] + (leap and month == 2)
        or (year == 0 and not match[7])
    ):
        raise F1Error(Code.OUT_OF_RANGE, f"there is no day {_shown(text)} in the calendar")
    days = days_of(year, month, day)
    if not DATE_MIN <= days <= DATE_MAX:
        raise F1Error(Code.OUT_OF_RANGE, f"date {_shown(text)} is out of range")
    return days


def days_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a day of the proleptic Gregorian calendar, of any year."""
    shifted = year - (month <= 2)  # years from March to February: the leap day comes last
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _time_us(time: re.Match[str], text: str) -> int:
    hours, minutes, seconds = int(time[1]), int(time[2]), int(time[3] or 0)
    fraction = round(int((time[4] or "0")[:9].ljust(9, "0")) / 1000)
    offset = int(time[7] or 0) * 3600 + int(time[8] or 0) * 60 + int(time[9] or 0)
    whole = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 60 or whole > 86_400 or int(time[8] or 0) > 59 or offset > 16 * 3600:
        raise F1Error(Code.OUT_OF_RANGE, f"there is no time of day {_shown(text)}")
    return (whole - (offset if time[6] != "-" else -offset)) * 1_000_000 + fraction


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
