# cython: language_level=3, cdivision=True
"""Set up ColumnViews for Arrow types; write decimals, dates and times as text, and vectors."""

from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint16_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from ...resp.buffer cimport put_signed, reserve
from ...resp.numbers_and_times cimport (
    half_of, put_date, put_decimal, put_duration, put_offset, put_time, put_timestamp, width_of,
)
from .arrow cimport ArrowSchema
from ..fields cimport as_milliseconds
from .column_view cimport (
    BAD_INDEX, IS_NULL, KIND_BYTES, KIND_FLOAT, KIND_LIST, KIND_MAP, KIND_NONE, KIND_OTHER,
    KIND_STRUCT, KIND_TEXT, KIND_VALUE, LAYOUT_DICTIONARY, LAYOUT_FIXED, LAYOUT_FIXED_LIST,
    LAYOUT_LARGE_LIST, LAYOUT_LARGE_LIST_VIEW, LAYOUT_LARGE_STRING, LAYOUT_LIST, LAYOUT_LIST_VIEW,
    LAYOUT_NONE, LAYOUT_RUNS, LAYOUT_STRING, LAYOUT_STRUCT, LAYOUT_VIEW, LONGEST, NOT_A_TIME,
    NO_MEMORY, NULL_INSIDE, OTHER_LENGTH, OUT_OF_RANGE, SPANS, STORAGE_DOUBLE, STORAGE_HALF,
    STORAGE_INT16, STORAGE_INT32, STORAGE_INT64, STORAGE_INT8, STORAGE_OTHER, STORAGE_SINGLE,
    STORAGE_UINT16, STORAGE_UINT32, STORAGE_UINT64, STORAGE_UINT8, TOO_LARGE, ColumnView, Storage,
    Zone, allocate, holds_integers, innermost, is_null, name_of, number_at, number_in, refer,
    resolve, set_name, span, text_of_written, value,
)
from .text cimport VALUE, make_plain

import re
from datetime import datetime, timedelta, timezone

from ...outcome.errors import EncodeError

# The extension name of a column with the JSON text of each whole row.
cdef bytes DOCUMENT = b"fastresp.document"
# The extension name of a column with all fields of each JSON row, for {**}.
cdef bytes FIELDS = b"fastresp.fields"
# The extension types that can be sent, with the allowed formats of their storage.
cdef dict EXTENSIONS = {
    b"arrow.uuid": ("w:16",), b"arrow.json": ("u", "U", "vu"), b"arrow.bool8": ("c",),
    b"arrow.fixed_shape_tensor": ("+w:",), DOCUMENT: ("z",), VALUE: ("u",),
    FIELDS: ("+m",),
}
cdef dict LAYOUTS = {
    "u": LAYOUT_STRING, "z": LAYOUT_STRING, "U": LAYOUT_LARGE_STRING, "Z": LAYOUT_LARGE_STRING,
    "vu": LAYOUT_VIEW, "vz": LAYOUT_VIEW, "+l": LAYOUT_LIST, "+m": LAYOUT_LIST,
    "+L": LAYOUT_LARGE_LIST, "+vl": LAYOUT_LIST_VIEW, "+vL": LAYOUT_LARGE_LIST_VIEW,
    "+w": LAYOUT_FIXED_LIST, "+s": LAYOUT_STRUCT, "+r": LAYOUT_RUNS, "n": LAYOUT_NONE,
    "w:0": LAYOUT_NONE, "+ud": LAYOUT_NONE, "+us": LAYOUT_NONE,
}
cdef dict STORAGES = {
    "c": STORAGE_INT8, "C": STORAGE_UINT8, "s": STORAGE_INT16, "S": STORAGE_UINT16,
    "i": STORAGE_INT32, "I": STORAGE_UINT32, "l": STORAGE_INT64, "L": STORAGE_UINT64,
    "e": STORAGE_HALF, "f": STORAGE_SINGLE, "g": STORAGE_DOUBLE,
}


cdef int build(ColumnView *column, ArrowSchema *schema, list kept) except -1:
    """Set up a column for a type; ``column.text`` stays NULL if the values have no text form.

    Args:
        column: a zeroed ColumnView.
        schema: the type.
        kept: receives the objects that the column points to; must outlive the column.
    """
    column.schema = schema
    set_name(column, b"" if schema.name is NULL else schema.name, kept)
    if reserve(&column.scratch, column.scratch.base, LONGEST) is NULL:
        raise MemoryError
    column.vector = -1
    column.digits = 2
    column.children = allocate(schema.n_children or 1)
    cdef str text = format_of(schema)
    cdef Py_ssize_t i
    cdef bytes extension = extension_name(schema)
    cdef bint known = is_known(schema, extension)
    column.storage = STORAGES.get(text, STORAGE_OTHER)
    if schema.dictionary is not NULL:
        column.n_children = 1
        column.layout = LAYOUT_DICTIONARY
        build(&column.children[0], schema.dictionary, kept)
        if known and holds_integers(column.storage):
            refer(column, &column.children[0])
        return 0
    for i in range(schema.n_children):
        column.n_children = i + 1
        build(&column.children[i], schema.children[i], kept)
    column.layout = LAYOUTS.get(text.partition(":")[0] if text[:1] == "+" else text, LAYOUT_FIXED)
    if not known or not has_children(column):
        column.layout = LAYOUT_NONE
        return 0        # the storage alone does not define the meaning of the values
    if text[:1] == "+":
        choose_nested(column, text)
    elif text[:1] in ("t", "d"):
        make_time(column, text, kept)
    else:
        make_plain(column, text, extension)
    if column.kind == KIND_NONE:
        column.layout = LAYOUT_NONE
    if column.write is not NULL:
        column.text = text_of_written
        column.brief = text[:1] != "d"
    return 0


cdef bint set_json(ColumnView *column) except -1:
    """Set and return ``column.json``: whether the values and all nested values have a JSON form."""
    cdef Py_ssize_t i
    column.json = column.kind != KIND_NONE and column.kind != KIND_BYTES
    for i in range(column.n_children):
        column.json = set_json(&column.children[i]) and column.json
    if column.kind == KIND_STRUCT:
        names = [
            column.children[i].name[:column.children[i].name_size]
            for i in range(column.n_children)
        ]
        column.json = column.json and len(set(names)) == column.n_children
    elif column.kind == KIND_MAP:
        column.json = column.json and innermost(&column.children.children[0]).kind not in (
            KIND_LIST, KIND_STRUCT, KIND_MAP
        )
    return column.json


cdef str format_of(ArrowSchema *schema):
    """Return a type's format string; a time zone's name in it is not always valid UTF-8."""
    return schema.format.decode(errors="backslashreplace")


cdef bytes extension_name(ArrowSchema *schema):
    """Return the name of an extension type; empty for any other type.

    Metadata are pairs of strings, each preceded by its length. Source:
    https://arrow.apache.org/docs/format/CDataInterface.html#c.ArrowSchema.metadata
    """
    cdef const char *p = schema.metadata
    cdef int32_t pairs = 0, size = 0
    cdef list texts = []
    if p is NULL:
        return b""
    memcpy(&pairs, p, 4)
    p += 4
    for _ in range(2 * pairs):
        memcpy(&size, p, 4)
        texts.append(p[4:4 + size])
        p += 4 + size
    return dict(zip(texts[::2], texts[1::2])).get(b"ARROW:extension:name", b"")


cdef bint is_known(ArrowSchema *schema, bytes extension) except -1:
    """Return False for an unknown extension type, or for the wrong storage type."""
    if not extension:
        return True
    cdef str kind = format_of(schema)
    return schema.dictionary is NULL and any([
        kind == format or format[-1] == ":" and kind.startswith(format)
        for format in EXTENSIONS.get(extension, ())
    ])


cdef bint is_fields(ColumnView *column) except -1:
    """Return whether a column contains the fields of each JSON row: see FIELDS."""
    cdef ColumnView *pair = column.children
    return (
        column.kind == KIND_MAP and extension_name(column.schema) == FIELDS
        and pair.children.layout == LAYOUT_DICTIONARY and pair.children.storage == STORAGE_INT32
        and pair.children.children.plain and pair.children[1].kind == KIND_VALUE
    )


cdef bint has_children(ColumnView *column) noexcept:
    """Return whether a list, map or run-end encoded type has the required children."""
    cdef Py_ssize_t n = column.n_children
    if column.layout == LAYOUT_RUNS:
        return n == 2 and holds_integers(column.children[0].storage)
    return n == 1 or column.layout not in (
        LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_LIST_VIEW, LAYOUT_LARGE_LIST_VIEW, LAYOUT_FIXED_LIST
    )


cdef str type_name(ArrowSchema *schema):
    """Return the name of a type, for error messages."""
    cdef str kind = format_of(schema)
    cdef bytes extension = extension_name(schema)
    if not is_known(schema, extension):
        return f"{extension.decode(errors='backslashreplace')}, an Arrow extension type"
    if schema.dictionary is not NULL:
        return "dictionary"
    names = {
        "+l": "list", "+L": "list", "+vl": "list", "+vL": "list", "+w": "fixed-size list",
        "+s": "struct", "+m": "map", "+u": "union", "ti": "interval", "z": "binary",
        "Z": "binary", "vz": "binary", "w:": "fixed-size binary", "+r": "run-end encoded",
        "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16",
        "i": "int32", "I": "uint32", "l": "int64", "L": "uint64", "e": "float16", "f": "float32",
        "g": "float64", "u": "string", "U": "string", "vu": "string", "d:": "decimal",
        "td": "date", "tt": "time", "ts": "timestamp", "tD": "duration",
    }
    return names.get(kind) or names.get(kind[:2]) or f"'{kind}' of Arrow"


cdef int choose_nested(ColumnView *column, str kind) except -1:
    column.kind = KIND_LIST
    if kind.startswith("+w:"):
        column.width = number_in(kind[3:])
        if column.width < 0:
            column.kind = KIND_NONE
    elif kind == "+s":
        column.kind = KIND_STRUCT
    elif kind == "+m" and column.children.kind == KIND_STRUCT and column.children.n_children == 2:
        column.kind = KIND_MAP
    elif kind == "+r":
        refer(column, &column.children[1])
    elif kind not in ("+l", "+L", "+vl", "+vL"):
        column.kind = KIND_NONE       # such as a union
    return 0


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# In a span of 18 hours, a zone changes its offset at most once.
cdef int64_t SPAN_SECONDS = 1 << 16
cdef int CHANGES = 1 << 30      # marks a span in which the offset changes
# Units per second, by the unit's letter in a type's format string.
cdef dict UNITS = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}
# Precision, scale, and bits.
DECIMAL = re.compile(r"d:\d{1,2},(-?\d{1,3})(?:,(32|64|128|256))?")


cdef int make_time(ColumnView *column, str kind, list kept) except -1:
    """Set up a column to write values of a decimal or time type; ``kind`` is its format string."""
    column.kind = KIND_TEXT
    decimal = DECIMAL.fullmatch(kind)
    if decimal is not None:
        column.scale = int(decimal[1])
        column.width = int(decimal[2] or 128) // 8
        column.write = write_decimal
        if reserve(&column.scratch, column.scratch.base, 100 + abs(column.scale)) is NULL:
            raise MemoryError
    elif kind == "tdD":
        column.write = write_date32
    elif kind == "tdm":
        column.write = write_date64
    elif kind[:2] in ("tt", "ts", "tD") and kind[2:3] in UNITS:
        column.per_second = UNITS[kind[2]]
        if kind[1] == "t":
            column.write = write_time32 if kind[2] in "sm" else write_time64
        elif kind[1] == "D":
            column.write = write_duration
        else:
            column.write = write_timestamp
            if len(kind) > 4:
                set_zone(column, kind[4:], kept)
    else:
        column.kind = KIND_NONE       # such as an interval of months and days
    return 0


cdef int set_zone(ColumnView *column, str name, list kept) except -1:
    """Set a column's time zone: a fixed UTC offset, or a zone with an offset for each time span."""
    cdef Zone *zone
    try:
        if name[0] in "+-":
            found = datetime.strptime(name.replace(":", ""), "%z").tzinfo
        else:
            from zoneinfo import ZoneInfo

            found = ZoneInfo(name)
    except Exception as error:
        raise EncodeError(
            f"column {name_of(column)!r} has the time zone {name!r}, which is not known here: "
            f"{error}; install the IANA time zones with 'pip install tzdata'"
        ) from None
    zone = <Zone *>calloc(1, sizeof(Zone))
    if zone is NULL:
        raise MemoryError
    column.zone = zone
    column.write = write_zoned
    if isinstance(found, timezone) or name in ("UTC", "Etc/UTC"):
        zone.fixed = int(found.utcoffset(EPOCH).total_seconds())
        return 0
    zone.spans[0] = 1       # an impossible number for this entry: the cache is empty
    zone.zone = <PyObject *>found
    kept.append(found)
    return 0


cdef char *write_decimal(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    cdef uint64_t words[4]
    cdef Py_ssize_t at = column.offset + i
    cdef int64_t small
    if column.width > 8:
        memcpy(words, <const char *>column.values + at * column.width, column.width)
    else:
        small = (
            (<const int64_t *>column.values)[at] if column.width == 8
            else (<const int32_t *>column.values)[at]
        )
        words[0] = <uint64_t>small
        words[1] = <uint64_t>(small >> 63)
    cdef int n_words = 4 if column.width == 32 else 2
    return put_decimal(p, <const unsigned long long *>words, n_words, column.scale)


cdef char *write_date32(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_date(p, (<const int32_t *>column.values)[column.offset + i])


cdef inline int64_t floor_divide(int64_t number, int64_t by) noexcept nogil:
    return number // by - (number % by < 0)


cdef char *write_date64(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    cdef int64_t milliseconds = (<const int64_t *>column.values)[column.offset + i]
    return put_date(p, floor_divide(milliseconds, 86_400_000))


cdef char *write_time32(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_time(p, (<const int32_t *>column.values)[column.offset + i], column.per_second)


cdef char *write_time64(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_time(p, (<const int64_t *>column.values)[column.offset + i], column.per_second)


cdef char *write_duration(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_duration(p, (<const int64_t *>column.values)[column.offset + i], column.per_second)


cdef char *write_timestamp(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_timestamp(p, (<const int64_t *>column.values)[column.offset + i], column.per_second)


cdef char *write_zoned(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    """Write an instant as the local time in the column's zone, with the UTC offset."""
    cdef int64_t number = (<const int64_t *>column.values)[column.offset + i]
    cdef int offset = offset_at(column.zone, floor_divide(number, column.per_second))
    cdef int64_t shift = offset * column.per_second
    if offset == CHANGES or (
        number > INT64_MAX - shift if shift > 0 else number < INT64_MIN - shift
    ):
        return NULL
    p = put_timestamp(p, number + shift, column.per_second)
    return NULL if p is NULL else put_offset(p, offset)


cdef inline int offset_at(Zone *zone, int64_t second) noexcept nogil:
    """Return a zone's UTC offset at an instant, in seconds east of UTC; CHANGES on error."""
    cdef int64_t number = floor_divide(second, SPAN_SECONDS)
    cdef Py_ssize_t at = number & (SPANS - 1)
    cdef int offset
    if zone.zone is NULL:
        return zone.fixed
    if zone.spans[at] != number:
        zone.offsets[at] = look_up_span(zone, number)
        zone.spans[at] = number
    offset = zone.offsets[at]
    return look_up(zone, second) if offset == CHANGES else offset


cdef int look_up_span(Zone *zone, int64_t number) noexcept nogil:
    """Return the UTC offset in a time span; CHANGES if the span's ends have different offsets."""
    cdef int first = look_up(zone, number * SPAN_SECONDS)
    cdef int last = look_up(zone, (number + 1) * SPAN_SECONDS - 1)
    return first if first == last else CHANGES


cdef int look_up(Zone *zone, int64_t second) noexcept with gil:
    """Query Python for the UTC offset at an instant; return CHANGES on error."""
    try:
        there = (EPOCH + timedelta(seconds=second)).astimezone(<object>zone.zone)
        return int(there.utcoffset().total_seconds())
    except Exception:
        return CHANGES


cdef const char *text_of_milliseconds(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n
) noexcept nogil:
    """Return a time of ``column.target`` as milliseconds since 1970: see as_milliseconds()."""
    cdef ColumnView *times = resolve(column.target, &i)
    cdef const char *text = NULL
    cdef int64_t time, per_second
    if times is NULL:
        n[0] = BAD_INDEX if i < 0 else IS_NULL
        return NULL
    if times.zone is not NULL:
        time, per_second = (<const int64_t *>times.values)[times.offset + i], times.per_second
        if per_second >= 1000:
            time = floor_divide(time, per_second // 1000)
        elif -INT64_MAX // 1000 < time < INT64_MAX // 1000:
            time *= 1000
        else:
            n[0] = OUT_OF_RANGE
            return NULL
        n[0] = put_signed(column.scratch.base, time) - column.scratch.base
        return column.scratch.base
    text = value(times, i, n)
    if text is NULL:
        return NULL
    n[0] = put_milliseconds(column.scratch.base, text, n[0])
    return column.scratch.base if n[0] > 0 else NULL


cdef Py_ssize_t put_milliseconds(char *p, const char *text, Py_ssize_t n) noexcept with gil:
    """Convert a time from text to milliseconds; write the number at p, and return its size.

    Return NOT_A_TIME if the text is not a time.
    """
    try:
        milliseconds = str(as_milliseconds(text[:n].decode())).encode()
    except Exception:
        return NOT_A_TIME
    if len(milliseconds) > LONGEST:
        return NOT_A_TIME
    memcpy(p, <const char *>milliseconds, len(milliseconds))
    return len(milliseconds)


cdef bint make_vector(ColumnView *column, ColumnView *lists, str kind) except -1:
    """Set up a column to write lists as vectors; return False unless they are lists of numbers."""
    cdef ColumnView *items = &innermost(lists).children[0]
    if innermost(lists).kind != KIND_LIST or items.kind in (KIND_NONE, KIND_OTHER):
        return False
    if items.storage == STORAGE_OTHER:
        return False
    column.width = width_of(kind)
    column.vector = -1
    column.zero_copy = items.kind == KIND_FLOAT and items.width == column.width
    column.text = text_of_ready_vector if column.zero_copy else text_of_vector
    return True


cdef inline Py_ssize_t locate(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *count, ColumnView **found
) noexcept nogil:
    """Return the index of a vector's first item; -1 if the vector is invalid.

    Args:
        count: receives the vector's length, or the Fault if the vector is invalid.
        found: receives the column of the items of all vectors.
    """
    cdef Py_ssize_t start, end, at
    cdef ColumnView *lists = column.target
    cdef ColumnView *items
    if lists.kind == KIND_OTHER or is_null(lists, i):
        lists = resolve(lists, &i)
        if lists is NULL:
            count[0] = BAD_INDEX if i < 0 else IS_NULL
            return -1
    found[0] = items = &lists.children[0]
    span(lists, i, &start, &end)
    count[0] = end - start
    if column.vector != count[0]:
        if column.vector >= 0:
            count[0] = OTHER_LENGTH
            return -1
        column.vector = count[0]
    if items.validity is not NULL:
        for at in range(start, end):
            if is_null(items, at):
                count[0] = NULL_INSIDE
                return -1
    return start + items.offset


cdef const char *text_of_ready_vector(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n
) noexcept nogil:
    """Return the bytes of a vector in Arrow memory, which can be sent unchanged."""
    cdef ColumnView *items
    cdef Py_ssize_t start = locate(column, i, n, &items)
    if start < 0:
        return NULL
    n[0] *= column.width
    # An empty array may have no memory, and NULL would mean null.
    if n[0] == 0:
        return column.scratch.base
    return <const char *>items.values + start * column.width


cdef const char *text_of_vector(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Convert the numbers of a vector, and return the vector's bytes."""
    cdef ColumnView *items
    cdef Py_ssize_t k, count, start = locate(column, i, &count, &items)
    if start < 0:
        n[0] = count
        return NULL
    # Local variables stay in registers; the compiler must assume that a write changes the column.
    cdef Storage storage = items.storage
    cdef const void *numbers = items.values
    cdef Py_ssize_t width = column.width
    n[0] = count * width
    cdef char *to = reserve(&column.scratch, column.scratch.base, n[0])
    if to is NULL:
        n[0] = NO_MEMORY
        return NULL
    for k in range(count):
        if not convert(to + k * width, width, number_at(storage, numbers, start + k)):
            n[0] = TOO_LARGE
            return NULL
    return to


cdef inline bint convert(char *to, Py_ssize_t width, double number) noexcept nogil:
    """Write a number; return False if a finite number would become infinite."""
    if width == 8:
        (<double *>to)[0] = number
    elif width == 4:
        (<float *>to)[0] = <float>number
        return isfinite((<float *>to)[0]) or not isfinite(number)
    else:
        (<uint16_t *>to)[0] = half_of(number)
        return (<uint16_t *>to)[0] & 0x7FFF != 0x7C00 or not isfinite(number)
    return True
