from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from ...resp.out cimport Out
from .storage cimport Storage


cdef extern from *:
    """
    #if defined(__GNUC__)
    /* Two cache lines, 2 KiB ahead. */
    static inline void fastresp_read_ahead(const char *p) {
        __builtin_prefetch(p + 2048);
        __builtin_prefetch(p + 2112);
    }
    #else
    #define fastresp_read_ahead(p)
    #endif
    """
    # Saves a tenth of the time per command if the strings are not in a cache: the hardware
    # prefetcher does not cross a page.
    void read_ahead "fastresp_read_ahead"(const char *p) noexcept nogil


# Why a value has no text.
cdef enum Fault:
    IS_NULL = 0
    NO_MEMORY = -1
    OUT_OF_RANGE = -2       # a date without an ISO 8601 text
    BAD_INDEX = -3          # an index outside its dictionary
    NULL_INSIDE = -4        # a null within a vector
    OTHER_LENGTH = -5       # a vector whose length differs from the first one's
    TOO_LARGE = -6          # a number that becomes infinite in the vector's type
    NOT_FINITE = -7         # a NaN or infinity, which JSON lacks
    NULL_KEY = -8           # a null as the name of a pair
    IS_NOT_ALLOWED = -9     # a null, where nulls are errors
    ARGUMENT_TOO_LARGE = -10
    IS_NULL_ROW = -11
    NOT_UTF8 = -12          # a text that JSON can't contain
    RAISED = -13            # an exception
    DAMAGED = -14           # a value outside its column's memory
    SAME_KEY = -15          # a duplicate key in a map
    NOT_ONE_ARGUMENT = -16  # an object or a list of JSON


# The kinds of values that JSON writes differently.
cdef enum Form:
    FORM_NONE               # unknown
    FORM_NULL
    FORM_NUMBER
    FORM_FLOAT              # a number, if finite
    FORM_BOOL
    FORM_TEXT
    FORM_BYTES
    FORM_VALUE              # a JSON value of any type: see numbers_and_strings.pyx
    FORM_LIST
    FORM_STRUCT
    FORM_MAP
    FORM_OTHER              # the form of the dictionary's or run's values


# The memory layout of values.
cdef enum Layout:
    LAYOUT_NONE             # none, or unknown
    LAYOUT_FIXED            # each of the same size
    LAYOUT_STRING           # strings or bytes with offsets of 32 bits,
    LAYOUT_LARGE_STRING     # or of 64 bits,
    LAYOUT_VIEW             # or by views
    LAYOUT_LIST             # lists, or maps
    LAYOUT_LARGE_LIST
    LAYOUT_LIST_VIEW
    LAYOUT_LARGE_LIST_VIEW
    LAYOUT_FIXED_LIST
    LAYOUT_STRUCT
    LAYOUT_DICTIONARY
    LAYOUT_RUNS


cdef struct Zone:
    PyObject *zone          # borrowed; NULL if the offset is always the same
    int fixed               # seconds east of UTC
    int64_t *spans          # a cache: numbers of spans of time,
    int *offsets            # and the offset in each


cdef enum:
    LONGEST = 64


# A column, or a column nested in one: how to make the text of a value, and from which memory.
cdef struct Cell:
    # Returns the text of a value, valid until the next call; NULL and a Fault in n on error. Never
    # called for values that the validity bitmap marks as null: value() checks that.
    const char *(*text)(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
    # Writes the text at p and returns its end, or NULL for a value out of range. NULL for types
    # with texts in memory. Needs room for LONGEST bytes, more for a decimal.
    char *(*write)(Cell *cell, Py_ssize_t i, char *p) noexcept nogil
    bint brief              # it writes at most LONGEST bytes
    int digits              # digits of the length of the last argument written
    Form form
    Layout layout
    Storage storage         # of numbers, or of the indices of a dictionary
    bint json               # whether it has a JSON form, including all nested values
    bint plain              # strings or bytes with offsets of 32 bits
    bint lasting            # texts are in Arrow memory, and live as long as the batch
    # Of the current batch:
    Py_ssize_t offset       # of its first row
    const uint8_t *validity     # NULL if nothing is null
    const void *values      # the buffer of values, or of offsets
    const char *bytes       # of strings
    bint empty              # all strings are empty
    const char **variadic   # of views
    Py_ssize_t n_variadic
    const int64_t *sizes    # of these, or of the items of list views
    Py_ssize_t length       # values from the offset to the first damaged one
    Py_ssize_t run          # the current run
    bint may_be_null
    # Of the column:
    Py_ssize_t width        # bytes of a value, or items of a fixed-size list
    int64_t per_second      # the unit of times
    int scale               # of decimals
    Py_ssize_t vector       # items of the first vector; -1 before it
    Zone *zone
    Cell *children
    Py_ssize_t n_children
    Cell *inner             # borrowed: the cell to write in another form,
    Cell *over              # and its struct, if it is a field of one
    bint hidden             # not a field of the row
    char *name              # owned: UTF-8
    Py_ssize_t name_size
    Out scratch             # memory for texts that must be made


cdef Cell *allocate(Py_ssize_t n) except NULL
cdef void destroy(Cell *cell) noexcept
cdef int set_name(Cell *cell, bytes name) except -1
cdef str name_of(Cell *cell)
cdef Py_ssize_t number_in(str text) except -2
cdef int rename(Cell *cell, list names) except -1
cdef int make_field(Cell *cell, Cell *over, Cell *field, bytes name) except -1
cdef void copy_properties(Cell *cell, Cell *inner) noexcept
cdef Cell *innermost(Cell *cell) noexcept nogil
cdef Cell *followed(Cell *cell, Py_ssize_t *i) noexcept nogil
cdef void span(Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil
cdef const char *text_of_written(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_dictionary(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_run(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil


cdef inline const char *value(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the text of a value; NULL and a Fault without one."""
    cdef Py_ssize_t at
    cdef const int32_t *offsets
    if cell.validity is not NULL:
        at = cell.offset + i
        if not cell.validity[at >> 3] >> (at & 7) & 1:
            n[0] = IS_NULL
            return NULL
    if not cell.plain:
        return cell.text(cell, i, n)
    # The most common type, inlined: it saves a tenth of the time per command.
    offsets = <const int32_t *>cell.values + cell.offset + i
    n[0] = offsets[1] - offsets[0]
    read_ahead(cell.bytes + offsets[0])
    return cell.bytes + offsets[0]


cdef inline bint is_null(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Return whether the validity bitmap marks a value as null."""
    cdef Py_ssize_t at = cell.offset + i
    return cell.validity is not NULL and not cell.validity[at >> 3] >> (at & 7) & 1


cdef inline Cell *resolve(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """Return the cell, and set i to the index, that a value of a dictionary, run or path refers to.

    NULL if the value is null; the index is -1 if it is out of bounds.
    """
    if cell.form == FORM_OTHER:
        cell = followed(cell, i)
    return NULL if cell is NULL or is_null(cell, i[0]) or cell.form == FORM_NULL else cell
