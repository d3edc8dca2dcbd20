# cython: language_level=3, cdivision=True
"""Make cells from Arrow types. A cell describes how to write the values of a column as text."""

from libc.stdint cimport int32_t
from libc.string cimport memcpy

from .arrow cimport ArrowSchema
from .cell cimport (
    FORM_BYTES,
    FORM_LIST,
    FORM_MAP,
    FORM_NONE,
    FORM_STRUCT,
    FORM_VALUE,
    LAYOUT_DICTIONARY,
    LAYOUT_FIXED,
    LAYOUT_FIXED_LIST,
    LAYOUT_LARGE_LIST,
    LAYOUT_LARGE_LIST_VIEW,
    LAYOUT_LARGE_STRING,
    LAYOUT_LIST,
    LAYOUT_LIST_VIEW,
    LAYOUT_NONE,
    LAYOUT_RUNS,
    LAYOUT_STRING,
    LAYOUT_STRUCT,
    LAYOUT_VIEW,
    LONGEST,
    Cell,
    allocate,
    copy_properties,
    innermost,
    number_in,
    set_name,
    text_of_dictionary,
    text_of_run,
    text_of_written,
)
from .decimals_and_times cimport make_time
from .numbers_and_strings cimport VALUE, make_plain
from ...resp.out cimport reserve
from .storage cimport (
    STORAGE_DOUBLE,
    STORAGE_HALF,
    STORAGE_INT8,
    STORAGE_INT16,
    STORAGE_INT32,
    STORAGE_INT64,
    STORAGE_OTHER,
    STORAGE_SINGLE,
    STORAGE_UINT8,
    STORAGE_UINT16,
    STORAGE_UINT32,
    STORAGE_UINT64,
    holds_integers,
)

# The extension name of a column with the JSON text of each whole row.
DOCUMENT = b"fastresp.document"
# The extension name of a column with all fields of each JSON row, for {**}.
FIELDS = b"fastresp.fields"
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


cdef int build(Cell *cell, ArrowSchema *schema, list zones) except -1:
    """Fill in a cell for the values of a type; a type without a text form gets no ``text``.

    Args:
        cell: an empty cell.
        schema: the type.
        zones: receives the time zones that the cell points to. The list must outlive the cell.
    """
    cdef bytes name = b"" if schema.name is NULL else schema.name
    set_name(cell, name)
    if reserve(&cell.scratch, cell.scratch.base, LONGEST) is NULL:
        raise MemoryError
    cell.vector = -1
    cell.digits = 2
    cell.children = allocate(schema.n_children or 1)
    cdef str text = format_of(schema)
    cdef Py_ssize_t i
    cdef bytes extension = extension_name(schema)
    cdef bint known = is_known(schema, extension)
    cell.storage = STORAGES.get(text, STORAGE_OTHER)
    if schema.dictionary is not NULL:
        cell.n_children = 1
        cell.layout = LAYOUT_DICTIONARY
        build(&cell.children[0], schema.dictionary, zones)
        if known and holds_integers(cell.storage):
            copy_properties(cell, &cell.children[0])
            cell.text = text_of_dictionary
        return 0
    for i in range(schema.n_children):
        cell.n_children = i + 1
        build(&cell.children[i], schema.children[i], zones)
    cell.layout = LAYOUTS.get(text.partition(":")[0] if text[:1] == "+" else text, LAYOUT_FIXED)
    if not known or not has_children(cell):
        cell.layout = LAYOUT_NONE
        return 0        # the storage alone does not define the meaning of the values
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
    return 0


cdef bint settle_json(Cell *cell) except -1:
    """Set and return ``cell.json``: whether the values and all nested values have a JSON form."""
    cdef Py_ssize_t i
    cell.json = cell.form != FORM_NONE and cell.form != FORM_BYTES
    for i in range(cell.n_children):
        cell.json = settle_json(&cell.children[i]) and cell.json
    if cell.form == FORM_STRUCT:
        names = {cell.children[i].name[:cell.children[i].name_size] for i in range(cell.n_children)}
        cell.json = cell.json and len(names) == cell.n_children
    elif cell.form == FORM_MAP:
        cell.json = cell.json and innermost(&cell.children.children[0]).form not in (
            FORM_LIST, FORM_STRUCT, FORM_MAP
        )
    return cell.json


cdef str format_of(ArrowSchema *schema):
    """Return a type's format string, even if the name of a time zone is not UTF-8."""
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
    """Return whether a type is plain, or a known extension with an allowed storage."""
    if not extension:
        return True
    cdef str kind = format_of(schema)
    return schema.dictionary is NULL and any([
        kind == format or format[-1] == ":" and kind.startswith(format)
        for format in EXTENSIONS.get(extension, ())
    ])


cdef bint is_fields(Cell *cell, ArrowSchema *schema) except -1:
    """Return whether a column contains the fields of each JSON row: see FIELDS."""
    cdef Cell *pair = cell.children
    return (
        cell.form == FORM_MAP and extension_name(schema) == FIELDS
        and pair.children.layout == LAYOUT_DICTIONARY and pair.children.storage == STORAGE_INT32
        and pair.children.children.plain and pair.children[1].form == FORM_VALUE
    )


cdef bint has_children(Cell *cell) noexcept:
    """Return whether a list, map or run-end encoded type has the required children."""
    cdef Py_ssize_t n = cell.n_children
    if cell.layout == LAYOUT_RUNS:
        return n == 2 and holds_integers(cell.children[0].storage)
    return n == 1 or cell.layout not in (
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


cdef int choose_nested(Cell *cell, str kind) except -1:
    cell.form = FORM_LIST
    if kind.startswith("+w:"):
        cell.width = number_in(kind[3:])
        if cell.width < 0:
            cell.form = FORM_NONE
    elif kind == "+s":
        cell.form = FORM_STRUCT
    elif kind == "+m" and cell.children.form == FORM_STRUCT and cell.children.n_children == 2:
        cell.form = FORM_MAP
    elif kind == "+r":
        cell.text = text_of_run
        copy_properties(cell, &cell.children[1])
    elif kind not in ("+l", "+L", "+vl", "+vL"):
        cell.form = FORM_NONE       # such as a union
    return 0
