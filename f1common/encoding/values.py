"""Values that Python's own types would leave ambiguous, and the one definition of NUMERIC.

A timestamp is not an integer and a date is not a number of days to the codecs, so both have a type of their own.
They hold what Arrow holds (microseconds, days), because values travel in bulk and calendars are for people.
"""

import datetime
import decimal
from decimal import Decimal
from typing import Self

import msgspec

from f1common.errors import Code, F1Error

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
DATE_MIN = -(1 << 31)
DATE_MAX = (1 << 31) - 1

TIMESTAMP_MIN = INT64_MIN
TIMESTAMP_MAX = INT64_MAX - 1
"""The highest timestamp. The value above it marks a place where a commit timestamp is still to be filled in."""

NUMERIC_SCALE = 9
NUMERIC_LIMIT = 10**38
"""NUMERIC is DECIMAL(38,9): a multiple of 10**-9 whose number of units is below this limit in magnitude."""

_EPOCH_DATE = datetime.date(1970, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
# Wide enough for all 38 digits; whatever does not fit is an error instead of being rounded away.
_CONTEXT = decimal.Context(prec=60, traps=[decimal.InvalidOperation, decimal.Inexact])


class Timestamp(msgspec.Struct, frozen=True, order=True, gc=False):
    """A moment: microseconds since the Unix epoch, UTC."""

    us: int

    @classmethod
    def of(cls, moment: datetime.datetime) -> Self:
        """Convert an aware datetime. Raises F1Error INVALID_ARGUMENT for a naive one."""
        if moment.tzinfo is None:
            raise F1Error(Code.INVALID_ARGUMENT, f"a timestamp needs a time zone: {moment.isoformat()}")
        return cls((moment - _EPOCH) // _MICROSECOND)

    def to_datetime(self) -> datetime.datetime:
        """Convert to an aware datetime in UTC. Raises F1Error OUT_OF_RANGE outside the years 1 to 9999."""
        try:
            return _EPOCH + datetime.timedelta(microseconds=self.us)
        except OverflowError as error:
            raise F1Error(Code.OUT_OF_RANGE, f"timestamp {self.us} us lies outside the years 1 to 9999") from error


class Date(msgspec.Struct, frozen=True, order=True, gc=False):
    """A calendar day: days since 1970-01-01, negative before."""

    days: int

    @classmethod
    def of(cls, day: datetime.date) -> Self:
        """Convert a date of the standard library. Raises F1Error INVALID_ARGUMENT for a datetime."""
        if isinstance(day, datetime.datetime):
            raise F1Error(Code.INVALID_ARGUMENT, f"a date has no time of day: {day.isoformat()}")
        return cls((day - _EPOCH_DATE).days)

    def to_date(self) -> datetime.date:
        """Convert to a date. Raises F1Error OUT_OF_RANGE outside the years 1 to 9999."""
        try:
            return _EPOCH_DATE + datetime.timedelta(days=self.days)
        except OverflowError as error:
            raise F1Error(Code.OUT_OF_RANGE, f"date {self.days} days lies outside the years 1 to 9999") from error


def numeric_units(value: Decimal) -> int:
    """Return ``value`` in units of 10**-9. Raises F1Error OUT_OF_RANGE if it is no DECIMAL(38,9) exactly."""
    if not value.is_finite():
        raise F1Error(Code.OUT_OF_RANGE, f"NUMERIC has no {value}")
    if not value:
        return 0
    # Looking at the exponent bounds the work below: 1E+999999999 must not be multiplied out.
    if value.adjusted() > 28:
        raise F1Error(Code.OUT_OF_RANGE, f"NUMERIC(38,9) has at most 29 digits before the point: {value:.40g}")
    try:
        scaled = value.scaleb(NUMERIC_SCALE, context=_CONTEXT)
        units = int(scaled)
    except decimal.DecimalException:
        scaled, units = value, 0
    if units != scaled:
        raise F1Error(Code.OUT_OF_RANGE, f"NUMERIC(38,9) has at most 9 digits after the point: {value:.40g}")
    return units


def numeric_from_units(units: int) -> Decimal:
    """Return ``units`` times 10**-9 in canonical form: no trailing zeros after the point, no exponent above 0."""
    scale = NUMERIC_SCALE
    while scale and units % 10 == 0:
        units //= 10
        scale -= 1
    return Decimal(units).scaleb(-scale, context=_CONTEXT)
