from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from ...resp.numbers_and_times cimport half_value
from ...resp.buffer cimport Out
from .arrow cimport ArrowArray, ArrowSchema

cdef enum Storage:
    STORAGE_OTHER           # not a number
    STORAGE_INT8
    STORAGE_UINT8
    STORAGE_INT16
    STORAGE_UINT16
    STORAGE_INT32
    STORAGE_UINT32
    STORAGE_INT64
    STORAGE_UINT64
    STORAGE_HALF            # after all integers
    STORAGE_SINGLE
    STORAGE_DOUBLE


cdef inline bint holds_integers(Storage storage) noexcept nogil:
    return STORAGE_OTHER < storage < STORAGE_HALF


cdef inline int64_t integer_at(Storage storage, const void *values, Py_ssize_t i) noexcept nogil:
    """Return an integer; an unsigned 64-bit integer is reinterpreted as signed."""
    if storage == STORAGE_INT8:
        return (<const int8_t *>values)[i]
    if storage == STORAGE_UINT8:
        return (<const uint8_t *>values)[i]
    if storage == STORAGE_INT16:
        return (<const int16_t *>values)[i]
    if storage == STORAGE_UINT16:
        return (<const uint16_t *>values)[i]
    if storage == STORAGE_INT32:
        return (<const int32_t *>values)[i]
    if storage == STORAGE_UINT32:
        return (<const uint32_t *>values)[i]
    return (<const int64_t *>values)[i]


cdef inline double number_at(Storage storage, const void *values, Py_ssize_t i) noexcept nogil:
    """Return any number as the nearest double."""
    if storage == STORAGE_DOUBLE:
        return (<const double *>values)[i]
    if storage == STORAGE_SINGLE:
        return <double>(<const float *>values)[i]
    if storage == STORAGE_HALF:
        return half_value((<const uint16_t *>values)[i])
    if storage == STORAGE_UINT64:
        return <double>(<const uint64_t *>values)[i]
    return <double>integer_at(storage, values, i)


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define fastresp_fetch_line(p) __builtin_prefetch(p)
    #else
    #define fastresp_fetch_line(p)
    #endif
    /* Two cache lines, 2 KiB ahead. */
    static inline void fastresp_read_ahead(const char *p) {
        fastresp_fetch_line(p + 2048);
        fastresp_fetch_line(p + 2112);
    }
    """
    # Prefetch a cache line; any address is allowed.
    void fetch "fastresp_fetch_line"(const char *p) noexcept nogil
    # Saves a tenth of the time per command if the strings are not in a cache: the hardware
    # prefetcher does not cross a page.
    void read_ahead "fastresp_read_ahead"(const char *p) noexcept nogil


# Why a value can't be written.
cdef enum Fault:
    IS_NULL = 0
    NO_MEMORY = -1
    OUT_OF_RANGE = -2       # a date that ISO 8601 can't represent
    BAD_INDEX = -3          # an index outside its dictionary
    NULL_INSIDE = -4        # a null within a vector
    OTHER_LENGTH = -5       # a vector whose length differs from the first vector's length
    TOO_LARGE = -6          # a number that becomes infinite in the vector's type
    NOT_FINITE = -7         # a NaN or infinity, which JSON lacks
    NULL_KEY = -8           # a null as the name of a pair
    IS_NOT_ALLOWED = -9     # a null, and nulls are errors
    ARGUMENT_TOO_LARGE = -10
    IS_NULL_ROW = -11
    NOT_UTF8 = -12          # text that is not UTF-8, as JSON requires
    RAISED = -13            # an exception was raised
    DAMAGED = -14           # a value outside its column's memory
    SAME_KEY = -15          # a duplicate key in a map
    NOT_ONE_ARGUMENT = -16  # a JSON object or list, as one argument
    NOT_A_TIME = -17        # a value that is not a time with a UTC offset


# The kinds of values, by their representation in JSON.
cdef enum ColumnKind:
    KIND_NONE               # unknown
    KIND_NULL
    KIND_NUMBER
    KIND_FLOAT              # a number, if finite
    KIND_BOOL
    KIND_TEXT
    KIND_BYTES
    KIND_VALUE              # a JSON value of any type: see text.pyx
    KIND_LIST
    KIND_STRUCT
    KIND_MAP
    KIND_OTHER              # refers to the values of a dictionary, of runs, or of a struct's field


# The memory layout of values.
cdef enum Layout:
    LAYOUT_NONE             # no values, or unknown layout
    LAYOUT_FIXED            # values of equal size
    LAYOUT_STRING           # strings or bytes with 32-bit offsets
    LAYOUT_LARGE_STRING     # strings or bytes with 64-bit offsets
    LAYOUT_VIEW             # strings or bytes as views
    LAYOUT_LIST             # lists or maps with 32-bit offsets
    LAYOUT_LARGE_LIST
    LAYOUT_LIST_VIEW
    LAYOUT_LARGE_LIST_VIEW
    LAYOUT_FIXED_LIST
    LAYOUT_STRUCT
    LAYOUT_DICTIONARY
    LAYOUT_RUNS


cdef enum:
    LONGEST = 64
    # The number of recent time spans in the cache of a time zone: 2 years in 12 KiB.
    SPANS = 1024


cdef struct Zone:
    PyObject *zone          # borrowed; NULL for a fixed offset
    int fixed               # the fixed offset, in seconds east of UTC
    int64_t[SPANS] spans    # the numbers of the cached time spans
    int[SPANS] offsets      # the offset in each time span


# A column or nested column: its type, how to write a value as text, and where the values of the
# current batch are.
cdef struct ColumnView:
    # Returns the text of a value, valid until the next call; on error, returns NULL and sets n to a
    # Fault. It does not check the validity bitmap: call value() instead.
    const char *(*text)(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
    # Writes the text at p and returns the end of the text, or NULL for a value out of range. Needs
    # room for LONGEST bytes, more for a decimal. NULL if the text is in Arrow memory.
    char *(*write)(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil
    bint brief              # whether write() needs at most LONGEST bytes
    int digits              # number of digits in the length of the last written argument
    ColumnKind kind
    Layout layout
    Storage storage         # storage of numbers, or of a dictionary's indices
    bint json               # whether values and all nested values have a JSON form
    bint plain              # whether these are strings or bytes with 32-bit offsets
    bint zero_copy          # whether texts are in Arrow memory, valid as long as the batch lives
    # Fields for the current batch:
    Py_ssize_t offset       # index of the batch's first row
    const uint8_t *validity     # NULL if there are no nulls
    const void *values      # the buffer with values or offsets
    const char *bytes       # the bytes of all strings
    bint empty              # whether all strings are empty
    const char **variadic   # the data buffers of views
    Py_ssize_t n_variadic
    const int64_t *sizes    # sizes of the data buffers, or of list views
    Py_ssize_t length       # number of values from the offset to the first damaged value
    Py_ssize_t run          # index of the current run
    bint may_be_null
    # Fields for the column:
    ArrowSchema *schema     # borrowed: the type; only valid while a template is compiled
    Py_ssize_t width        # number of bytes per value, or of items per fixed-size list
    int64_t per_second      # number of time units per second, such as 1_000 for ms
    int scale               # the scale of decimals
    Py_ssize_t vector       # number of items of the first vector; -1 before the first vector
    Zone *zone              # owned
    ColumnView *children
    Py_ssize_t n_children
    ColumnView *target      # borrowed: the column to convert, or with the values of KIND_OTHER
    ColumnView *parent      # borrowed: the struct of ``target`` if this is a path; otherwise NULL
    bint hidden             # whether this column is not a field of the row
    const char *name        # borrowed: UTF-8
    Py_ssize_t name_size
    Out scratch             # memory for formatted texts


cdef ColumnView *allocate(Py_ssize_t n) except NULL
cdef void destroy(ColumnView *column) noexcept
cdef int set_name(ColumnView *column, bytes name, list kept) except -1
cdef str name_of(ColumnView *column)
cdef Py_ssize_t number_in(str text) except -2
cdef int rename(ColumnView *column, list names, list kept) except -1
cdef int make_field(
    ColumnView *column, ColumnView *parent, ColumnView *field, bytes name, list kept
) except -1
cdef void refer(ColumnView *column, ColumnView *target) noexcept
cdef ColumnView *innermost(ColumnView *column) noexcept nogil
cdef ColumnView *follow(ColumnView *column, Py_ssize_t *i) noexcept nogil
cdef void span(ColumnView *column, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil
cdef const char *text_of_written(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil


cdef inline const char *value(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the text of a value, with its size in n; on error NULL, with a Fault in n."""
    cdef Py_ssize_t at
    cdef const int32_t *offsets
    if column.validity is not NULL:
        at = column.offset + i
        if not column.validity[at >> 3] >> (at & 7) & 1:
            n[0] = IS_NULL
            return NULL
    if not column.plain:
        return column.text(column, i, n)
    # Inline the most common type, which saves a tenth of the time per command.
    offsets = <const int32_t *>column.values + column.offset + i
    n[0] = offsets[1] - offsets[0]
    read_ahead(column.bytes + offsets[0])
    return column.bytes + offsets[0]


cdef inline bint is_null(ColumnView *column, Py_ssize_t i) noexcept nogil:
    """Return whether the validity bitmap marks a value as null."""
    cdef Py_ssize_t at = column.offset + i
    return column.validity is not NULL and not column.validity[at >> 3] >> (at & 7) & 1


cdef inline ColumnView *resolve(ColumnView *column, Py_ssize_t *i) noexcept nogil:
    """Follow dictionaries, runs and paths to a value; return the column and the index of the value.

    Args:
        i: the value's index in ``column``; receives the index in the returned column, or -1 if an
            index is out of bounds.

    Returns:
        NULL if the value is null, or an index is out of bounds.
    """
    if column.kind == KIND_OTHER:
        column = follow(column, i)
    return NULL if column is NULL or is_null(column, i[0]) or column.kind == KIND_NULL else column


cdef int bind(ColumnView *column, ArrowArray *array, Py_ssize_t base) except -1


cdef void trim_damage(ColumnView *column, int above) noexcept nogil
cdef Py_ssize_t find_damage(ColumnView *column, Py_ssize_t first, Py_ssize_t last) noexcept nogil
