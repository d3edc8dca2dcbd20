# cython: language_level=3, cdivision=True
"""Arrow columns as cells: for each type how its values become text, and where a batch has them."""

from libc.stdint cimport (
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from .arrow cimport ArrowArray, ArrowSchema
from .bounds cimport check_shape
from .numbers_and_strings cimport make_plain
from .decimals_and_times cimport make_time

import re

cdef const char *EMPTY = b""        # NULL would be a null
# The whole row as the JSON that it was read from: a column that is none of the row's fields.
DOCUMENT = b"fastresp.document"
# The canonical ones that have a text, or whose storage is what anybody would send; and the formats
# that this storage may have.
cdef dict EXTENSIONS = {
    b"arrow.uuid": ("w:16",), b"arrow.json": ("u", "U", "vu"), b"arrow.bool8": ("c",),
    b"arrow.fixed_shape_tensor": ("+w:",), DOCUMENT: ("z",),
}
cdef dict LAYOUTS = {
    "u": LAYOUT_STRING, "z": LAYOUT_STRING, "U": LAYOUT_LARGE_STRING, "Z": LAYOUT_LARGE_STRING,
    "vu": LAYOUT_VIEW, "vz": LAYOUT_VIEW, "+l": LAYOUT_LIST, "+m": LAYOUT_LIST,
    "+L": LAYOUT_LARGE_LIST, "+vl": LAYOUT_LIST_VIEW, "+vL": LAYOUT_LARGE_LIST_VIEW,
    "+w": LAYOUT_FIXED_LIST, "+s": LAYOUT_STRUCT, "+r": LAYOUT_RUNS, "n": LAYOUT_NONE,
    "w:0": LAYOUT_NONE, "+ud": LAYOUT_NONE, "+us": LAYOUT_NONE,
}


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


# What a column is, from its schema.


cdef int build(Cell *cell, ArrowSchema *schema, list zones) except -1:
    """Find out how values of this type become text; one that can't has no text function.

    Args:
        zones: takes the time zones that the cell refers to, which have to live as long as it.
    """
    cdef bytes name = b"" if schema.name is NULL else schema.name
    set_name(cell, name)
    if room(&cell.scratch, LONGEST):
        raise MemoryError
    cell.vector = -1
    cell.digits = 2
    cell.children = allocate(schema.n_children or 1)
    cdef bytes kind = schema.format
    cdef str text = format_of(schema)
    cdef Py_ssize_t i
    cdef bytes extension = extension_name(schema)
    cdef bint known = is_known(schema, extension)
    choose_index(cell, kind)
    if schema.dictionary is not NULL:
        cell.n_children = 1
        cell.layout = LAYOUT_DICTIONARY
        build(&cell.children[0], schema.dictionary, zones)
        if known and cell.index is not NULL:
            stand_for(cell, &cell.children[0])
            cell.text = text_of_dictionary
        return 0
    for i in range(schema.n_children):
        cell.n_children = i + 1
        build(&cell.children[i], schema.children[i], zones)
    cell.layout = LAYOUTS.get(text.partition(":")[0] if text[:1] == "+" else text, LAYOUT_FIXED)
    if not known or not has_children(cell):
        cell.layout = LAYOUT_NONE
        return 0        # its values mean more than their storage tells
    if text[:1] == "+":
        choose_nested(cell, text)
    elif text[:1] in ("t", "d"):
        make_time(cell, text, zones)
    else:
        make_plain(cell, text, extension)
    if cell.form == FORM_NONE:
        cell.layout = LAYOUT_NONE
    if cell.write is not NULL:
        cell.text = text_of_written
        cell.brief = text[:1] != "d"
    if cell.form != FORM_OTHER:
        cell.json = cell.form != FORM_NONE and cell.form != FORM_BYTES
        for i in range(cell.n_children):
            cell.json = cell.json and cell.children[i].json
    return 0


cdef str format_of(ArrowSchema *schema):
    """The format string of a type, which may end with any bytes where a time zone is."""
    return schema.format.decode(errors="backslashreplace")


cdef bytes extension_name(ArrowSchema *schema):
    """The name of an extension type; empty for any other.

    Metadata are pairs of texts, each after its length. Source:
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


cdef void make_unknown(Cell *cell) noexcept:
    """Let a cell have no text in any form, whatever its storage is."""
    cell.form, cell.layout = FORM_NONE, LAYOUT_NONE
    cell.text, cell.write, cell.span, cell.number = NULL, NULL, NULL, NULL
    cell.json = cell.plain = cell.brief = False


cdef bint is_known(ArrowSchema *schema, bytes extension) except -1:
    """Whether values are what their storage says, or an extension that has it for its own."""
    if not extension:
        return True
    cdef str kind = format_of(schema)
    return schema.dictionary is NULL and any([
        kind == format or format[-1] == ":" and kind.startswith(format)
        for format in EXTENSIONS.get(extension, ())
    ])


cdef bint has_children(Cell *cell) noexcept:
    """Whether a list, a map or runs have the children that make them."""
    cdef Py_ssize_t n = cell.n_children
    if cell.layout == LAYOUT_RUNS:
        return n == 2 and cell.children[0].index is not NULL
    return n == 1 or cell.layout not in (
        LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_LIST_VIEW, LAYOUT_LARGE_LIST_VIEW, LAYOUT_FIXED_LIST
    )


cdef Py_ssize_t number_in(str text) except -2:
    """The number that a format string has at its end; -1 where it is none."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


cdef void stand_for(Cell *cell, Cell *inner) noexcept:
    """Say of a dictionary, or of runs, what is to be said of its values."""
    cell.form = FORM_OTHER
    cell.json = inner.json
    cell.lasting = inner.lasting


cdef Cell *inmost(Cell *cell) noexcept nogil:
    """What the values of dictionaries, runs and fields of structs are."""
    while cell.form == FORM_OTHER:
        cell = cell.inner if cell.over is not NULL else &cell.children[cell.n_children - 1]
    return cell


cdef int make_field(Cell *cell, Cell *over, Cell *field, bytes name) except -1:
    """Let a cell stand for a field of structs, which is null where the struct is.

    Args:
        over: the structs, or what stands for them.
        name: of the whole path, for errors.
    """
    cell.over, cell.inner = over, field
    cell.text = text_of_field
    stand_for(cell, field)
    set_name(cell, name)
    return 0


cdef int set_name(Cell *cell, bytes name) except -1:
    cell.name = <char *>malloc(len(name) + 1)
    if cell.name is NULL:
        raise MemoryError
    memcpy(cell.name, <const char *>name, len(name) + 1)
    cell.name_size = len(name)
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
        cell.width = number_in(kind[3:])
        if cell.width < 0:
            cell.form, cell.span = FORM_NONE, NULL
    elif kind == "+s":
        cell.form = FORM_STRUCT
    elif kind == "+m" and cell.children.form == FORM_STRUCT and cell.children.n_children == 2:
        cell.form = FORM_MAP
        cell.span = span_of_list
    elif kind == "+r":
        cell.text = text_of_run
        stand_for(cell, &cell.children[1])
    else:
        cell.form = FORM_NONE       # such as a union
    return 0


cdef str name_of(Cell *cell):
    """The name of a column, for an error."""
    return cell.name[:cell.name_size].decode(errors="backslashreplace")


cdef str type_name(ArrowSchema *schema):
    """What to call a type in an error."""
    cdef str kind = format_of(schema)
    cdef bytes extension = extension_name(schema)
    if not is_known(schema, extension):
        return f"{extension.decode(errors='backslashreplace')}, an extension of Arrow"
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


# Where the values of a batch are.


cdef int bind(Cell *cell, ArrowArray *array, Py_ssize_t base) except -1:
    """Point a cell to the memory of a batch.

    Args:
        base: of a child that goes with its parent row by row, where the parent begins.
    """
    cdef Py_ssize_t i, first
    check_shape(cell, array)
    cell.offset = array.offset + base
    cell.length = array.length - base
    cell.run = 0
    cell.validity = NULL
    cell.values = NULL
    if array.n_buffers > 0 and array.buffers is not NULL and array.null_count != 0:
        cell.validity = <const uint8_t *>array.buffers[0]
    cell.may_be_null = cell.validity is not NULL or cell.form == FORM_NULL
    if array.n_buffers > 1:
        cell.values = array.buffers[1]
    if cell.layout == LAYOUT_VIEW:
        cell.variadic = <const char **>array.buffers + 2
        cell.n_variadic = array.n_buffers - 3
        cell.sizes = <const int64_t *>array.buffers[array.n_buffers - 1]
    elif cell.layout == LAYOUT_LIST_VIEW or cell.layout == LAYOUT_LARGE_LIST_VIEW:
        cell.sizes = <const int64_t *>array.buffers[2]
    elif cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LARGE_STRING:
        # Without any text there may be no memory, and NULL would be a null.
        cell.empty = array.buffers[2] is NULL
        cell.bytes = EMPTY if cell.empty else <const char *>array.buffers[2]
    if array.dictionary is not NULL:
        bind(&cell.children[0], array.dictionary, 0)
        cell.may_be_null |= cell.children[0].may_be_null
        return 0
    first = cell.offset if cell.layout == LAYOUT_STRUCT else 0
    for i in range(cell.n_children):
        bind(&cell.children[i], array.children[i], first)
    if cell.layout == LAYOUT_RUNS:
        cell.validity = NULL
        cell.may_be_null = cell.children[1].may_be_null
    return 0


cdef const char *text_of_written(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """The text of a type that is written, not found in memory."""
    cdef char *end = cell.write(cell, i, cell.scratch.data)
    n[0] = OUT_OF_RANGE if end is NULL else end - cell.scratch.data
    return NULL if end is NULL else cell.scratch.data


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


cdef const char *text_of_field(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    if stood_for(cell.over, &i) is NULL:
        n[0] = BAD_INDEX if i < 0 else IS_NULL
        return NULL
    return value(cell.inner, i, n)


cdef Cell *stood_for(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """The cell, and the index in it, that a value of a dictionary, run or path stands for.

    NULL where it is null; the index is -1 where it is out of bounds.
    """
    while cell.form == FORM_OTHER:
        if cell.over is not NULL:
            if stood_for(cell.over, i) is NULL:
                return NULL
            cell = cell.inner
            continue
        if is_null(cell, i[0]):
            return NULL
        i[0] = inner_index(cell, i[0])
        if i[0] < 0:
            return NULL
        cell = &cell.children[1 if cell.text is text_of_run else 0]
    return NULL if is_null(cell, i[0]) or cell.form == FORM_NULL else cell


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
    for low in range(low, min(low + 2, ends.length)):
        if run_end(ends, low) > at and (low == 0 or run_end(ends, low - 1) <= at):
            cell.run = low
            return low
    low, high = 0, ends.length
    while low < high:
        middle = (low + high) // 2
        if run_end(ends, middle) > at:
            high = middle
        else:
            low = middle + 1
    cell.run = low
    return low if low < ends.length else -1


cdef inline int64_t run_end(Cell *ends, Py_ssize_t i) noexcept nogil:
    return ends.index(ends.values, ends.offset + i)


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
