# cython: language_level=3, cdivision=True
"""Write decimals, dates, times, timestamps and durations of Arrow columns as text."""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from .cell cimport (
    FORM_NONE,
    FORM_TEXT,
    Cell,
    Zone,
    name_of,
)
from ...resp.out cimport reserve
from ...resp.times cimport (
    put_date,
    put_decimal,
    put_duration,
    put_offset,
    put_time,
    put_timestamp,
)

import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from ...outcome.errors import EncodeError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# In a span of this many seconds, 18 hours, a zone changes its offset at most once.
cdef int64_t SPAN_SECONDS = 1 << 16
# The number of recent spans in the cache: 2 years in 12 KiB.
cdef Py_ssize_t SPANS = 1 << 10
cdef int CHANGES = 1 << 30      # marks a span in which the offset changes
# Units per second, by the unit's letter in a type's format string.
cdef dict UNITS = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}
# Precision, scale, and bits.
DECIMAL = re.compile(r"d:\d{1,2},(-?\d{1,3})(?:,(32|64|128|256))?")


cdef int make_time(Cell *cell, str kind, list zones) except -1:
    """Set a cell to write values of a decimal or time type.

    Args:
        cell: the cell.
        kind: the type's format string.
        zones: receives the time zone that the cell points to.
    """
    cell.form = FORM_TEXT
    decimal = DECIMAL.fullmatch(kind)
    if decimal is not None:
        cell.scale = int(decimal[1])
        cell.width = int(decimal[2] or 128) // 8
        cell.write = write_decimal
        if reserve(&cell.scratch, cell.scratch.base, 100 + abs(cell.scale)) is NULL:
            raise MemoryError
    elif kind == "tdD":
        cell.write = write_date32
    elif kind == "tdm":
        cell.write = write_date64
    elif kind[:2] in ("tt", "ts", "tD") and kind[2:3] in UNITS:
        cell.per_second = UNITS[kind[2]]
        if kind[1] == "t":
            cell.write = write_time32 if kind[2] in "sm" else write_time64
        elif kind[1] == "D":
            cell.write = write_duration
        else:
            cell.write = write_timestamp
            if len(kind) > 4:
                set_zone(cell, kind[4:], zones)
    else:
        cell.form = FORM_NONE       # such as an interval of months and days
    return 0


cdef int set_zone(Cell *cell, str name, list zones) except -1:
    """Set a cell's time zone: a fixed UTC offset, or a zone whose offsets are looked up by time."""
    cdef Zone *zone
    try:
        if name[0] in "+-":
            found = datetime.strptime(name.replace(":", ""), "%z").tzinfo
        else:
            found = ZoneInfo(name)
    except Exception as error:
        raise EncodeError(
            f"column {name_of(cell)!r} has the time zone {name!r}, which is not known here: "
            f"{error}; install the IANA time zones with 'pip install tzdata'"
        ) from None
    zone = <Zone *>calloc(1, sizeof(Zone))
    if zone is NULL:
        raise MemoryError
    cell.zone = zone
    cell.write = write_zoned
    if isinstance(found, timezone) or name in ("UTC", "Etc/UTC"):
        zone.fixed = int(found.utcoffset(EPOCH).total_seconds())
        return 0
    zone.spans = <int64_t *>calloc(SPANS, sizeof(int64_t))
    zone.offsets = <int *>calloc(SPANS, sizeof(int))
    if zone.spans is NULL or zone.offsets is NULL:
        raise MemoryError
    zone.spans[0] = 1       # an impossible number for this entry: the cache is empty
    zone.zone = <PyObject *>found
    zones.append(found)
    return 0


cdef char *write_decimal(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef uint64_t words[4]
    cdef Py_ssize_t at = cell.offset + i
    cdef int64_t small
    if cell.width > 8:
        memcpy(words, <const char *>cell.values + at * cell.width, cell.width)
    else:
        small = (
            (<const int64_t *>cell.values)[at] if cell.width == 8
            else (<const int32_t *>cell.values)[at]
        )
        words[0] = <uint64_t>small
        words[1] = <uint64_t>(small >> 63)
    cdef int n_words = 4 if cell.width == 32 else 2
    return put_decimal(p, <const unsigned long long *>words, n_words, cell.scale)


cdef char *write_date32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t days = (<const int32_t *>cell.values)[cell.offset + i]
    return put_date(p, days)


cdef inline int64_t floor_divide(int64_t number, int64_t by) noexcept nogil:
    return number // by - (number % by < 0)


cdef char *write_date64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t milliseconds = (<const int64_t *>cell.values)[cell.offset + i]
    return put_date(p, floor_divide(milliseconds, 86_400_000))


cdef char *write_time32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t number = (<const int32_t *>cell.values)[cell.offset + i]
    return put_time(p, number, cell.per_second)


cdef char *write_time64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t number = (<const int64_t *>cell.values)[cell.offset + i]
    return put_time(p, number, cell.per_second)


cdef char *write_duration(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t number = (<const int64_t *>cell.values)[cell.offset + i]
    return put_duration(p, number, cell.per_second)


cdef char *write_timestamp(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t number = (<const int64_t *>cell.values)[cell.offset + i]
    return put_timestamp(p, number, cell.per_second)


cdef char *write_zoned(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    """Write an instant as the local time in the column's zone, with the UTC offset."""
    cdef int64_t number = (<const int64_t *>cell.values)[cell.offset + i]
    cdef int offset = offset_at(cell.zone, floor_divide(number, cell.per_second))
    cdef int64_t shift = offset * cell.per_second
    if offset == CHANGES or (
        number > INT64_MAX - shift if shift > 0 else number < INT64_MIN - shift
    ):
        return NULL
    p = put_timestamp(p, number + shift, cell.per_second)
    return NULL if p is NULL else put_offset(p, offset)


cdef inline int offset_at(Zone *zone, int64_t second) noexcept nogil:
    """Return a zone's UTC offset at an instant, in seconds east of UTC; CHANGES on error."""
    cdef int64_t span = floor_divide(second, SPAN_SECONDS)
    cdef Py_ssize_t at = span & (SPANS - 1)
    cdef int offset
    if zone.zone is NULL:
        return zone.fixed
    if zone.spans[at] != span:
        zone.offsets[at] = look_up_span(zone, span)
        zone.spans[at] = span
    offset = zone.offsets[at]
    return look_up(zone, second) if offset == CHANGES else offset


cdef int look_up_span(Zone *zone, int64_t span) noexcept nogil:
    """Return the UTC offset in a time span; CHANGES if both ends have different offsets."""
    cdef int first = look_up(zone, span * SPAN_SECONDS)
    cdef int last = look_up(zone, (span + 1) * SPAN_SECONDS - 1)
    return first if first == last else CHANGES


cdef int look_up(Zone *zone, int64_t second) noexcept with gil:
    """Query Python for the UTC offset at an instant; return CHANGES on error."""
    try:
        there = (EPOCH + timedelta(seconds=second)).astimezone(<object>zone.zone)
        return int(there.utcoffset().total_seconds())
    except Exception:
        return CHANGES
