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
    # A tenth of the time of a command where the strings are not in a cache: the processor itself
    # does not look beyond the end of a page.
    void read_ahead "fastresp_read_ahead"(const char *p) noexcept nogil


# What a value turned out to be, where it is not text.
cdef enum Fault:
    IS_NULL = 0
    NO_MEMORY = -1
    OUT_OF_RANGE = -2       # a date that ISO 8601 has no text for
    BAD_INDEX = -3          # an index outside of its dictionary
    NULL_INSIDE = -4        # a null within a vector
    OTHER_LENGTH = -5       # a vector that is not as long as the first one
    TOO_LARGE = -6          # a number that is infinite in the type wanted
    NOT_FINITE = -7         # a NaN or infinity, which JSON has no form for
    NULL_KEY = -8           # a null as the name of a pair
    IS_NOT_ALLOWED = -9     # a null, and nulls are errors
    ARGUMENT_TOO_LARGE = -10
    IS_NULL_ROW = -11
    EMPTY_COMMAND = -12     # not even a name
    NOT_UTF8 = -13          # a text that JSON can't hold
    RAISED = -14            # an exception
    DAMAGED = -15           # it does not lie within the memory of its column


# What a value is, as far as JSON makes a difference.
cdef enum Form:
    FORM_NONE               # nothing that we know
    FORM_NULL
    FORM_NUMBER
    FORM_FLOAT              # a number, if it is finite
    FORM_BOOL
    FORM_TEXT
    FORM_BYTES
    FORM_LIST
    FORM_STRUCT
    FORM_MAP
    FORM_OTHER              # what the value in the dictionary or run is that it stands for


# How the values lie in memory.
cdef enum Layout:
    LAYOUT_NONE             # not anywhere, or not known
    LAYOUT_FIXED            # each of the same size
    LAYOUT_STRING           # strings, or bytes, between offsets of 32 bits,
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
    PyObject *zone          # borrowed; NULL where the offset is always the same
    int fixed               # seconds east of UTC
    int64_t *spans          # what is known: numbers of spans of time,
    int *offsets            # and the offset in each


cdef enum:
    LONGEST = 64


# A column, or what is nested in one: how the text of a value is made, and from what memory.
cdef struct Cell:
    # Its text, valid until the next; NULL and a Fault in n where there is none. Never called for
    # what the validity bitmap says is null: value() looks there.
    const char *(*text)(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
    # Writes it at p and returns the end, or NULL for what is out of range; NULL for types whose
    # text is found in memory. Needs room for LONGEST bytes, a decimal for more.
    char *(*write)(Cell *cell, Py_ssize_t i, char *p) noexcept nogil
    bint brief              # it writes no more than LONGEST bytes
    int digits              # of the length of the last, where it was written as an argument
    Form form
    Layout layout
    Storage storage         # of numbers, or of the indices of a dictionary
    bint json               # whether it has a form in JSON, with all that is in it
    bint plain              # a string, or bytes, with offsets of 32 bits
    bint lasting            # texts lie in the Arrow memory, and last as long as the batch
    # Of the batch at hand:
    Py_ssize_t offset       # of its first row
    const uint8_t *validity     # NULL where nothing is null
    const void *values      # the buffer of values, or of offsets
    const char *bytes       # of strings
    bint empty              # no bytes at all, of strings
    const char **variadic   # of views
    Py_ssize_t n_variadic
    const int64_t *sizes    # of these, or of the items of list views
    Py_ssize_t length       # values from there on that are not damaged, nor behind one that is
    Py_ssize_t run          # the run at hand
    bint may_be_null
    # Of the column:
    Py_ssize_t width        # bytes of a value, or items of a fixed-size list
    int64_t per_second      # the unit of times
    int scale               # of decimals
    Py_ssize_t vector       # items of the first vector; -1 before it
    Zone *zone
    Cell *children
    Py_ssize_t n_children
    Cell *inner             # borrowed: what is to be written in another form,
    Cell *over              # and, where that is a field of a struct, the struct
    bint hidden             # not among the fields of a row
    char *name              # owned: UTF-8
    Py_ssize_t name_size
    Out scratch             # what texts that are made are written to


cdef Cell *allocate(Py_ssize_t n) except NULL
cdef void destroy(Cell *cell) noexcept
cdef int set_name(Cell *cell, bytes name) except -1
cdef str name_of(Cell *cell)
cdef Py_ssize_t number_in(str text) except -2
cdef void make_unknown(Cell *cell) noexcept
cdef int make_field(Cell *cell, Cell *over, Cell *field, bytes name) except -1
cdef void stand_for(Cell *cell, Cell *inner) noexcept
cdef Cell *inmost(Cell *cell) noexcept nogil
cdef Cell *followed(Cell *cell, Py_ssize_t *i) noexcept nogil
cdef void span(Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil
cdef const char *text_of_written(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_dictionary(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_run(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil


cdef inline const char *value(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """The text of a value; NULL and a Fault where there is none."""
    cdef Py_ssize_t at
    cdef const int32_t *offsets
    if cell.validity is not NULL:
        at = cell.offset + i
        if not cell.validity[at >> 3] >> (at & 7) & 1:
            n[0] = IS_NULL
            return NULL
    if not cell.plain:
        return cell.text(cell, i, n)
    # The most common type, without a call: it saves a tenth of the time of a command.
    offsets = <const int32_t *>cell.values + cell.offset + i
    n[0] = offsets[1] - offsets[0]
    read_ahead(cell.bytes + offsets[0])
    return cell.bytes + offsets[0]


cdef inline bint is_null(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Whether the validity bitmap says that a value is null."""
    cdef Py_ssize_t at = cell.offset + i
    return cell.validity is not NULL and not cell.validity[at >> 3] >> (at & 7) & 1


cdef inline Cell *stood_for(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """The cell, and the index in it, that a value of a dictionary, run or path stands for.

    NULL where it is null; the index is -1 where it is out of bounds.
    """
    if cell.form == FORM_OTHER:
        cell = followed(cell, i)
    return NULL if cell is NULL or is_null(cell, i[0]) or cell.form == FORM_NULL else cell
