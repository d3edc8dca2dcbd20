# cython: language_level=3, cdivision=True
"""The text of every value of an Arrow column, by one function a column, without Python objects."""

from cpython.object cimport PyObject
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from .arrow cimport ArrowArray, ArrowSchema
from .buffer cimport put_digits, put_signed
from .floats cimport half_value, put_double, put_half, put_single
from .times cimport (
    put_date,
    put_decimal,
    put_duration,
    put_offset,
    put_time,
    put_timestamp,
)

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from ..errors import EncodeError

# The texts of all types but decimals, strings and JSON fit in.
cdef Py_ssize_t SCRATCH_BYTES = LONGEST
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# In a span of so many seconds, 18 hours, a zone changes its offset no more than once.
cdef int64_t SPAN_SECONDS = 1 << 16
# Of the spans of time that were met last, so many are known: 12 KiB cover 2 years.
cdef Py_ssize_t SPANS = 1 << 10
cdef int CHANGES = 1 << 30      # the offset of a span in which it changes

cdef const char *BOOLS = b"01"
cdef const char *EMPTY = b""        # NULL would be a null

# One letter of the format string of a type.
cdef dict UNITS = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}


cdef Cell *allocate(Py_ssize_t n) except NULL:
    """So many empty cells."""
    cdef Cell *cells = <Cell *>calloc(n or 1, sizeof(Cell))
    if cells is NULL:
        raise MemoryError
    return cells


cdef void destroy(Cell *cell) noexcept:
    """Free what a cell holds, and its children."""
    cdef Py_ssize_t i
    for i in range(cell.n_children):
        destroy(&cell.children[i])
    free(cell.children)
    free(cell.name)
    free(cell.scratch.data)
    if cell.zone is not NULL:
        free(cell.zone.spans)
        free(cell.zone.offsets)
        free(cell.zone)


cdef int room(Scratch *scratch, Py_ssize_t n) noexcept nogil:
    """Make room for n more bytes; a Fault where there is no memory."""
    cdef Py_ssize_t capacity = scratch.size + n
    cdef char *data
    if capacity <= scratch.capacity:
        return 0
    capacity += capacity // 2
    data = <char *>realloc(scratch.data, capacity)
    if data is NULL:
        return NO_MEMORY
    scratch.data = data
    scratch.capacity = capacity
    return 0


# What a column is, from its schema.


cdef int build(Cell *cell, ArrowSchema *schema, list zones) except -1:
    """Find out how values of this type become text; one that can't has no text function.

    Args:
        zones: takes the time zones that the cell refers to, which have to live as long as it.
    """
    cdef bytes name = b"" if schema.name is NULL else schema.name
    cell.name = <char *>malloc(len(name) + 1)
    if cell.name is NULL or room(&cell.scratch, SCRATCH_BYTES):
        raise MemoryError
    memcpy(cell.name, <const char *>name, len(name) + 1)
    cell.name_size = len(name)
    cell.vector = -1
    cell.digits = 2
    cell.children = allocate(schema.n_children or 1)
    cdef bytes kind = schema.format
    cdef str text = kind.decode()
    cdef Py_ssize_t i
    if schema.dictionary is not NULL:
        cell.n_children = 1
        build(&cell.children[0], schema.dictionary, zones)
        stand_for(cell, &cell.children[0])
        choose_index(cell, kind)
        cell.text = text_of_dictionary
        return 0
    for i in range(schema.n_children):
        cell.n_children = i + 1
        build(&cell.children[i], schema.children[i], zones)
    if text[:1] == "+":
        choose_nested(cell, text)
    elif text[:1] in ("t", "d"):
        choose_time(cell, text, zones)
    else:
        choose_plain(cell, text)
    if cell.write is not NULL:
        cell.text = text_of_written
        cell.brief = cell.write is not write_decimal
    if cell.form != FORM_OTHER:
        cell.json = cell.form != FORM_NONE and cell.form != FORM_BYTES
        for i in range(cell.n_children):
            cell.json = cell.json and cell.children[i].json
    return 0


cdef void stand_for(Cell *cell, Cell *inner) noexcept:
    """Say of a dictionary, or of runs, what is to be said of its values."""
    cell.form = FORM_OTHER
    cell.json = inner.json
    cell.lasting = inner.lasting


cdef Cell *inmost(Cell *cell) noexcept:
    """What the values of dictionaries and runs are."""
    while cell.form == FORM_OTHER:
        cell = &cell.children[cell.n_children - 1]
    return cell


cdef int choose_plain(Cell *cell, str kind) except -1:
    cell.form = FORM_NUMBER
    cell.number = numbers_of(kind)
    if kind == "n":
        cell.text = text_of_null
        cell.form = FORM_TEXT
    elif kind == "b":
        cell.text, cell.form = text_of_bool, FORM_BOOL
    elif kind == "c":
        cell.write = write_int8
    elif kind == "C":
        cell.write = write_uint8
    elif kind == "s":
        cell.write = write_int16
    elif kind == "S":
        cell.write = write_uint16
    elif kind == "i":
        cell.write = write_int32
    elif kind == "I":
        cell.write = write_uint32
    elif kind == "l":
        cell.write = write_int64
    elif kind == "L":
        cell.write = write_uint64
    elif kind in ("e", "f", "g"):
        cell.form = FORM_FLOAT
        cell.write = (
            write_half if kind == "e" else write_single if kind == "f" else write_double
        )
        cell.width = 2 if kind == "e" else 4 if kind == "f" else 8
    else:
        choose_string(cell, kind)
    return 0


cdef int choose_string(Cell *cell, str kind) except -1:
    cell.lasting = True
    cell.form = FORM_TEXT if kind in ("u", "U", "vu") else FORM_BYTES
    if kind in ("u", "z"):
        cell.text = text_of_string
        cell.plain = True
    elif kind in ("U", "Z"):
        cell.text = text_of_large_string
    elif kind in ("vu", "vz"):
        cell.text = text_of_view
    elif kind.startswith("w:"):
        cell.text = text_of_fixed
        cell.width = int(kind[2:])
    else:
        cell.form = FORM_NONE
    return 0


cdef int choose_time(Cell *cell, str kind, list zones) except -1:
    cell.form = FORM_TEXT
    if kind.startswith("d:"):
        numbers = [int(number) for number in kind[2:].split(",")]
        cell.scale = numbers[1]
        cell.width = numbers[2] // 8 if len(numbers) > 2 else 16
        cell.write = write_decimal
        if room(&cell.scratch, 100 + abs(cell.scale)):
            raise MemoryError
    elif kind == "tdD":
        cell.write = write_date32
    elif kind == "tdm":
        cell.write = write_date64
    elif kind[:2] in ("tt", "ts", "tD"):
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
        cell.form = FORM_NONE       # an interval of months and days
    return 0


cdef int set_zone(Cell *cell, str name, list zones) except -1:
    """Look up a time zone once; a fixed offset needs no look at it later."""
    cdef Zone *zone
    try:
        if name[0] in "+-":
            found = datetime.strptime(name.replace(":", ""), "%z").tzinfo
        else:
            found = ZoneInfo(name)
    except Exception as error:
        raise EncodeError(
            f"column {cell.name.decode()!r} has the time zone {name!r}, which is not known here: "
            f"{error}; 'pip install tzdata' brings those of IANA"
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
    zone.spans[0] = 1       # a number that can't be there: nothing is known yet
    zone.zone = <PyObject *>found
    zones.append(found)
    return 0


cdef int choose_nested(Cell *cell, str kind) except -1:
    cell.form = FORM_LIST
    if kind == "+l":
        cell.span = span_of_list
    elif kind == "+L":
        cell.span = span_of_large_list
    elif kind == "+vl":
        cell.span = span_of_list_view
    elif kind == "+vL":
        cell.span = span_of_large_list_view
    elif kind.startswith("+w:"):
        cell.span = span_of_fixed
        cell.width = int(kind[3:])
    elif kind == "+s":
        cell.form = FORM_STRUCT
    elif kind == "+m":
        cell.form = FORM_MAP
        cell.span = span_of_list
    elif kind == "+r":
        cell.text = text_of_run
        stand_for(cell, &cell.children[1])
    else:
        cell.form = FORM_NONE       # a union
    return 0


cdef str type_name(ArrowSchema *schema):
    """What to call a type in an error."""
    cdef str kind = schema.format.decode()
    names = {
        "+l": "list", "+L": "list", "+vl": "list", "+vL": "list", "+w": "fixed-size list",
        "+s": "struct", "+m": "map", "+u": "union", "ti": "interval", "z": "binary",
        "Z": "binary", "vz": "binary", "w:": "fixed-size binary", "+r": "run-end encoded",
    }
    return names.get(kind) or names.get(kind[:2]) or f"'{kind}' of Arrow"


# Where the values of a batch are.


cdef int bind(Cell *cell, ArrowArray *array, Py_ssize_t base) except -1:
    """Point a cell to the memory of a batch.

    Args:
        base: of a child that goes with its parent row by row, where the parent begins.
    """
    cdef Py_ssize_t i, first
    cell.offset = array.offset + base
    cell.length = array.length
    cell.run = 0
    if cell.text is text_of_run:
        bind(&cell.children[0], array.children[0], 0)
        bind(&cell.children[1], array.children[1], 0)
        cell.length = array.children[0].length
        cell.validity = NULL
        cell.may_be_null = cell.children[1].may_be_null
        return 0
    cell.validity = NULL
    if array.n_buffers > 0 and array.null_count != 0 and cell.text is not text_of_null:
        cell.validity = <const uint8_t *>array.buffers[0]
    cell.may_be_null = cell.validity is not NULL or cell.text is text_of_null
    if array.n_buffers > 1:
        cell.values = array.buffers[1]
    if cell.text is text_of_view:
        cell.variadic = <const char **>array.buffers + 2
    elif cell.span is span_of_list_view or cell.span is span_of_large_list_view:
        cell.sizes = <const int64_t *>array.buffers[2]
    elif array.n_buffers > 2:
        # Without any text there may be no memory, and NULL would be a null.
        cell.bytes = <const char *>array.buffers[2] or EMPTY
    if array.dictionary is not NULL:
        bind(&cell.children[0], array.dictionary, 0)
        cell.may_be_null |= cell.children[0].may_be_null
        return 0
    first = cell.offset if cell.span is NULL else 0
    for i in range(cell.n_children):
        bind(&cell.children[i], array.children[i], first)
    return 0


# The text of a value, a function for each type.


cdef const char *text_of_null(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = IS_NULL
    return NULL


cdef const char *text_of_bool(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = cell.offset + i
    n[0] = 1
    return &BOOLS[(<const uint8_t *>cell.values)[at >> 3] >> (at & 7) & 1]


cdef char *write_int8(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int8_t *>cell.values)[cell.offset + i])


cdef char *write_int16(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int16_t *>cell.values)[cell.offset + i])


cdef char *write_int32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int32_t *>cell.values)[cell.offset + i])


cdef char *write_int64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int64_t *>cell.values)[cell.offset + i])


cdef char *write_uint8(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint8_t *>cell.values)[cell.offset + i])


cdef char *write_uint16(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint16_t *>cell.values)[cell.offset + i])


cdef char *write_uint32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint32_t *>cell.values)[cell.offset + i])


cdef char *write_uint64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint64_t *>cell.values)[cell.offset + i])


cdef const char *text_of_written(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """The text of a type that is written, not found in memory."""
    cdef char *end = cell.write(cell, i, cell.scratch.data)
    n[0] = OUT_OF_RANGE if end is NULL else end - cell.scratch.data
    return NULL if end is NULL else cell.scratch.data


cdef char *write_half(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef uint16_t bits = (<const uint16_t *>cell.values)[cell.offset + i]
    return put_half(p, bits)


cdef char *write_single(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef float number = (<const float *>cell.values)[cell.offset + i]
    return put_single(p, number)


cdef char *write_double(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef double number = (<const double *>cell.values)[cell.offset + i]
    return put_double(p, number)


cdef const char *text_of_string(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    return value(cell, i, n)        # which looks for itself


cdef const char *text_of_large_string(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef const int64_t *offsets = <const int64_t *>cell.values + cell.offset + i
    n[0] = offsets[1] - offsets[0]
    return cell.bytes + offsets[0]


cdef const char *text_of_view(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Up to 12 bytes stand in the view; of more, the number of a buffer and the offset in it."""
    cdef const int32_t *view = <const int32_t *>cell.values + 4 * (cell.offset + i)
    n[0] = view[0]
    return <const char *>&view[1] if view[0] <= 12 else cell.variadic[view[2]] + view[3]


cdef const char *text_of_fixed(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = cell.width
    return <const char *>cell.values + (cell.offset + i) * cell.width if cell.width else EMPTY


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
    """An instant as the time in the column's zone, with its offset from UTC."""
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
    """Seconds east of UTC at an instant; CHANGES where it has none."""
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
    """The offset in a span of time, if it is the same at both its ends."""
    cdef int first = look_up(zone, span * SPAN_SECONDS)
    cdef int last = look_up(zone, (span + 1) * SPAN_SECONDS - 1)
    return first if first == last else CHANGES


cdef int look_up(Zone *zone, int64_t second) noexcept with gil:
    """Ask Python for an offset; CHANGES where it knows none."""
    try:
        there = (EPOCH + timedelta(seconds=second)).astimezone(<object>zone.zone)
        return int(there.utcoffset().total_seconds())
    except Exception:
        return CHANGES


# Values that stand for others.


cdef const char *text_of_dictionary(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = inner_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[0], at, n)


cdef const char *text_of_run(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = inner_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[1], at, n)


cdef Cell *stood_for(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """The cell, and the index in it, that a value of a dictionary or a run stands for.

    NULL where it is null; the index is -1 where it is out of bounds.
    """
    while cell.text is text_of_dictionary or cell.text is text_of_run:
        if is_null(cell, i[0]):
            return NULL
        i[0] = inner_index(cell, i[0])
        if i[0] < 0:
            return NULL
        cell = &cell.children[1 if cell.text is text_of_run else 0]
    return NULL if is_null(cell, i[0]) or cell.text is text_of_null else cell


cdef Py_ssize_t inner_index(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Where among the values the one for this row is; -1 where it can't be."""
    cdef int64_t at = cell.offset + i
    if cell.text is text_of_run:
        return find_run(cell, at)
    at = cell.index(cell.values, at)
    return at if 0 <= at < cell.children[0].length else -1


cdef Py_ssize_t find_run(Cell *cell, int64_t at) noexcept nogil:
    """The run that a row is in: this one, the next, or one to be searched for by halves."""
    cdef Cell *ends = &cell.children[0]
    cdef Py_ssize_t low = cell.run, high, middle
    for low in range(low, min(low + 2, cell.length)):
        if run_end(ends, low) > at and (low == 0 or run_end(ends, low - 1) <= at):
            cell.run = low
            return low
    low, high = 0, cell.length
    while low < high:
        middle = (low + high) // 2
        if run_end(ends, middle) > at:
            high = middle
        else:
            low = middle + 1
    cell.run = low
    return low if low < cell.length else -1


cdef inline int64_t run_end(Cell *ends, Py_ssize_t i) noexcept nogil:
    if ends.write is write_int16:
        return index_of_int16(ends.values, ends.offset + i)
    if ends.write is write_int32:
        return index_of_int32(ends.values, ends.offset + i)
    return index_of_int64(ends.values, ends.offset + i)


cdef int choose_index(Cell *cell, bytes kind) except -1:
    if kind == b"c":
        cell.index = index_of_int8
    elif kind == b"C":
        cell.index = index_of_uint8
    elif kind == b"s":
        cell.index = index_of_int16
    elif kind == b"S":
        cell.index = index_of_uint16
    elif kind == b"i":
        cell.index = index_of_int32
    elif kind == b"I":
        cell.index = index_of_uint32
    elif kind == b"l":
        cell.index = index_of_int64
    elif kind == b"L":
        cell.index = index_of_uint64
    return 0


cdef int64_t index_of_int8(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const int8_t *>values)[i]


cdef int64_t index_of_uint8(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const uint8_t *>values)[i]


cdef int64_t index_of_int16(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const int16_t *>values)[i]


cdef int64_t index_of_uint16(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const uint16_t *>values)[i]


cdef int64_t index_of_int32(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const int32_t *>values)[i]


cdef int64_t index_of_uint32(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const uint32_t *>values)[i]


cdef int64_t index_of_int64(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const int64_t *>values)[i]


cdef int64_t index_of_uint64(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const uint64_t *>values)[i]


# Where the items of a list are among those of all lists.


cdef void span_of_list(
    Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end
) noexcept nogil:
    cdef const int32_t *offsets = <const int32_t *>cell.values + cell.offset + i
    start[0], end[0] = offsets[0], offsets[1]


cdef void span_of_large_list(
    Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end
) noexcept nogil:
    cdef const int64_t *offsets = <const int64_t *>cell.values + cell.offset + i
    start[0], end[0] = offsets[0], offsets[1]


cdef void span_of_list_view(
    Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end
) noexcept nogil:
    start[0] = (<const int32_t *>cell.values)[cell.offset + i]
    end[0] = start[0] + (<const int32_t *>cell.sizes)[cell.offset + i]


cdef void span_of_large_list_view(
    Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end
) noexcept nogil:
    start[0] = (<const int64_t *>cell.values)[cell.offset + i]
    end[0] = start[0] + cell.sizes[cell.offset + i]


cdef void span_of_fixed(
    Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end
) noexcept nogil:
    start[0] = (cell.offset + i) * cell.width
    end[0] = start[0] + cell.width


# Numbers as such, for vectors.


ctypedef double (*Number)(const void *values, Py_ssize_t i) noexcept nogil


cdef Number numbers_of(str kind) noexcept:
    """What reads the numbers of a type; NULL where it has none."""
    if kind == "c":
        return number_of_int8
    if kind == "C":
        return number_of_uint8
    if kind == "s":
        return number_of_int16
    if kind == "S":
        return number_of_uint16
    if kind == "i":
        return number_of_int32
    if kind == "I":
        return number_of_uint32
    if kind == "l":
        return number_of_int64
    if kind == "L":
        return number_of_uint64
    if kind == "e":
        return number_of_half
    if kind == "f":
        return number_of_single
    if kind == "g":
        return number_of_double
    return NULL


cdef double number_of_int8(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const int8_t *>values)[i]


cdef double number_of_uint8(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const uint8_t *>values)[i]


cdef double number_of_int16(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const int16_t *>values)[i]


cdef double number_of_uint16(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const uint16_t *>values)[i]


cdef double number_of_int32(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const int32_t *>values)[i]


cdef double number_of_uint32(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const uint32_t *>values)[i]


cdef double number_of_int64(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const int64_t *>values)[i]


cdef double number_of_uint64(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const uint64_t *>values)[i]


cdef double number_of_half(const void *values, Py_ssize_t i) noexcept nogil:
    return half_value((<const uint16_t *>values)[i])


cdef double number_of_single(const void *values, Py_ssize_t i) noexcept nogil:
    return <double>(<const float *>values)[i]


cdef double number_of_double(const void *values, Py_ssize_t i) noexcept nogil:
    return (<const double *>values)[i]
