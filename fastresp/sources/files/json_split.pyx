# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Split rows of JSON into values, and copy them into columns of Arrow.

The time for a row depends on the row's own fields, not on the number of columns.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from ...encode.strings cimport hashed, is_utf8
from ...resp.buffer cimport put_copy
from .json_text cimport (
    BROKEN,
    BYTES,
    DIGIT,
    DUPLICATE_KEY,
    FINE,
    LITERAL,
    NO_MEMORY,
    NOT_JSON,
    NOT_LITERAL,
    NOT_UTF8,
    OPEN,
    SPACE,
    Fault,
    Keys,
    Text,
    end_of_literal,
    end_of_number,
    ends_value,
    flatten,
    is_null,
    unescape,
)

from json import loads

from ...outcome.errors import SourceError
from .json_text import WRONG_ENCODING

cdef enum:
    MARK_BIT = 1 << 30          # a bit of Value.column
    MARKED = 0xFF               # MARK of json_text: the value is not a JSON string
    MAX_COLUMNS = 1 << 30
    MAX_BYTES = 0x7FFFFFFF     # Arrow's offsets are signed and have 32 bits
    FIRST_ROOM = 1 << 10


cdef struct Value:
    const char *text            # NULL if the value is null
    uint32_t size
    uint32_t column             # number of the column; MARK_BIT is set unless the value is a string


cdef struct Column:
    const char *name
    Py_ssize_t name_size
    uint64_t hash
    bint plain                  # the name needs no escapes in JSON
    bint nested                 # the values are written to ``lines``
    bint left_out               # the values are only in the whole row
    Py_ssize_t next             # the column that followed when this column was last read
    Py_ssize_t row              # the last row with this column; -1 if no row has it
    Py_ssize_t count, size      # number of non-null values in the last batch, and bytes of text
    # In the current batch:
    bint chosen                 # False between batches
    uint8_t *validity           # NULL if no value is null
    int32_t *offsets
    char *text
    Py_ssize_t filled           # index of the last offset that is set


cdef inline void add_size(Column *column, Value *value) noexcept nogil:
    """Count a value of a column."""
    column.count += value.text is not NULL
    column.size += value.size + (value.column >= MARK_BIT)


# Where the next field of a row is written.
cdef struct Fields:
    int32_t count               # number of earlier fields
    Py_ssize_t nulls            # number of nulls among the earlier fields
    int32_t *numbers
    uint8_t *validity
    int32_t *offsets
    char *text


# Whether a string continues after this byte, without an escape.
cdef bint[256] PLAIN


cdef int prepare() except -1:
    cdef int byte
    for byte in range(256):
        PLAIN[byte] = 32 <= byte < MARKED and byte not in b'"\\'
    return 0


prepare()


@cython.final
cdef class Split:
    """The rows of a block, split into values.

    Args:
        block: whole lines, each empty or one JSON object.
        max_depth: maximum nesting of objects and arrays, less than 256.
        known: the names of the known columns.
        nested: the names of the columns whose values are returned by ``nested_lines()``.
        known_only: whether to leave out unknown columns. In that case, unless ``documents`` is set,
            the keys of unknown columns may be duplicated.
        all_names: whether ``names`` includes unknown columns.
        fields: whether all values, including nested values, are wanted as fields of rows.
        documents: whether there is a column of whole rows.

    Attributes:
        fault: the message about a bad row; "" if the message must come from Arrow's parser; None if
            no row is bad.
        duplicate_key: the duplicate key of a bad row; None if no row has a duplicate key.
        rows: number of objects.
        line_ends: number of line ends.
        names: the names of the columns: known names, then, if ``all_names``, unknown names.
        has_objects, has_lists: whether a value is an object or a list.

    Raises:
        SourceError: the block is too large, or a key is not UTF-8.
    """

    cdef readonly str fault, duplicate_key
    cdef readonly Py_ssize_t rows, line_ends
    cdef readonly list names
    cdef readonly bint has_objects, has_lists
    cdef bytes block
    cdef list name_bytes        # keeps the names of nested and known columns in memory
    cdef Value *nested          # the names of nested columns
    cdef Py_ssize_t n_nested, n_known
    cdef bint known_only, fields, documents
    cdef Py_ssize_t max_depth
    cdef Column *columns        # the first is the column of whole rows
    cdef Py_ssize_t n_columns, room_of_columns
    cdef uint32_t *slots        # a hash table: numbers of columns, or 0
    cdef Py_ssize_t n_slots
    cdef Value *values
    cdef Py_ssize_t n_values, room_of_values
    cdef Py_ssize_t *starts     # index of the first value of each row
    cdef Py_ssize_t room_of_rows
    cdef char *texts            # text of values that differs from the block
    cdef char *lines            # JSON lines with the nested values
    cdef char *lines_end
    cdef Keys keys              # keys of nested objects
    cdef Py_ssize_t duplicate       # the column of a duplicate key; 0 for a nested key

    def __cinit__(
        self, bytes block not None, Py_ssize_t max_depth, list known, *, nested=(),
        bint known_only=False, bint all_names=False, bint fields=False, bint documents=False,
    ):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
        cdef Text text
        cdef Fault fault
        cdef Py_ssize_t i
        if size > MAX_BYTES:
            raise SourceError(f"a row has more than {MAX_BYTES:,} bytes; split it")
        self.block, self.max_depth = block, max_depth - 1
        self.known_only, self.fields, self.documents = known_only, fields, documents
        self.name_bytes = [name.encode() for name in [*nested, "", *known]]
        self.n_nested, self.n_known = len(nested), len(known)
        self.nested = <Value *>malloc(self.n_nested * sizeof(Value) + 1)
        self.texts = <char *>malloc(size + 1)
        self.lines = self.lines_end = <char *>malloc(size + 4 if nested else 1)
        if self.nested is NULL or self.texts is NULL or self.lines is NULL:
            raise MemoryError
        for i, name in enumerate(self.name_bytes):
            if i < self.n_nested:
                self.nested[i].text, self.nested[i].size = name, PyBytes_GET_SIZE(name)
            elif self.add_column(name, PyBytes_GET_SIZE(name)) < 0:
                raise MemoryError
        text.p = PyBytes_AS_STRING(block)
        text.end, text.out = text.p + size, self.texts
        with nogil:
            fault = self.read(&text)
        if fault == NO_MEMORY:
            raise MemoryError
        if fault == NOT_UTF8:
            raise SourceError(WRONG_ENCODING)
        if fault == NOT_JSON or fault == NOT_LITERAL:
            self.fault = "an object, a list or a literal is not valid JSON; fix it"
        elif fault:
            self.fault = ""
            self.duplicate_key = self.duplicate_name() if fault == DUPLICATE_KEY else None
        else:
            self.names = [*known, *self.unknown_names(self.n_columns if all_names else 0)]

    def __dealloc__(self):
        free(self.nested)
        free(self.columns)
        free(self.slots)
        free(self.values)
        free(self.starts)
        free(self.texts)
        free(self.lines)
        free(self.keys.keys)

    cdef str name(self, Py_ssize_t i):
        return self.columns[i].name[:self.columns[i].name_size].decode()

    cdef str duplicate_name(self):
        """Return the duplicate key."""
        if self.duplicate:
            return self.name(self.duplicate)
        return loads(self.keys.duplicate.text[:self.keys.duplicate.size])

    def names_in_rows(self):
        """Return the names that occur in any row."""
        return [name for i, name in enumerate(self.names, 1) if self.columns[i].row >= 0]

    def unknown_names(self, Py_ssize_t limit):
        """Return the names of the first ``limit`` unknown columns."""
        cdef Py_ssize_t i, first = self.n_known + 1
        return [self.name(i) for i in range(first, min(first + limit, self.n_columns))]

    def nested_lines(self):
        """Return JSON lines with the nested values: an object for each row."""
        return self.lines[:self.lines_end - self.lines]

    # Reading rows.

    cdef Fault read(self, Text *t) noexcept nogil:
        """Read all lines."""
        cdef Fault fault
        while True:
            skip_spaces(t)
            if t.p[0] == c'\n':
                self.line_ends += 1
                t.p += 1
                continue
            if t.p == t.end:
                return FINE
            fault = self.read_row(t)
            if fault:
                return fault
            skip_spaces(t)
            if t.p[0] != c'\n' and t.p != t.end:
                return BROKEN

    cdef Fault read_row(self, Text *t) noexcept nogil:
        """Read one object."""
        cdef const char *start = t.p
        cdef Py_ssize_t before = 0
        cdef Fault fault
        if start[0] != c'{':
            return BROKEN
        if self.rows == self.room_of_rows and not self.grow_rows():
            return NO_MEMORY
        self.starts[self.rows] = self.n_values
        self.rows += 1
        self.put_line(start, 1)
        t.p += 1
        skip_spaces(t)
        if t.p[0] != c'}':
            while True:
                fault = self.read_field(t, &before)
                if fault:
                    return fault
                skip_spaces(t)
                if t.p[0] != c',':
                    break
                t.p += 1
                skip_spaces(t)
        if t.p[0] != c'}':
            return BROKEN
        t.p += 1
        self.put_line(b"}\n", 2)
        if self.documents and not self.put_value(self.columns, 0, start, t.p - start):
            return NO_MEMORY
        return FINE

    cdef inline Fault read_field(self, Text *t, Py_ssize_t *before) noexcept nogil:
        """Read a key and its value.

        Args:
            before: the column of the previous key of this row; set to the column of this key.
        """
        cdef const char *start = t.p
        cdef Py_ssize_t i = self.columns[before[0]].next
        cdef Column *column = &self.columns[i]
        cdef Fault fault
        # The keys of a row mostly have the same order as in the previous row.
        if (
            column.plain and start[0] == c'"' and t.end - start > column.name_size + 1
            and start[column.name_size + 1] == c'"'
            and memcmp(start + 1, column.name, column.name_size) == 0
        ):
            t.p += column.name_size + 2
        else:
            fault = self.read_name(t, &i)
            if fault:
                return fault
            column = &self.columns[i]
        if i:
            self.columns[before[0]].next = i
            if column.row == self.rows:
                self.duplicate = i
                return DUPLICATE_KEY
            column.row = self.rows
            before[0] = i
        skip_spaces(t)
        if t.p[0] != c':':
            return BROKEN
        t.p += 1
        skip_spaces(t)
        return self.read_value(t, i, start)

    cdef Fault read_name(self, Text *t, Py_ssize_t *i) noexcept nogil:
        """Read a key, and set ``i`` to its column number; 0 if the key has no column."""
        cdef const char *name
        cdef Py_ssize_t size
        cdef Fault fault
        if t.p[0] != c'"':
            return BROKEN
        fault = read_string(t, &name, &size)
        if fault:
            return fault
        i[0] = self.find_column(name, size)
        return <Fault>-i[0] if i[0] < 0 else FINE

    cdef Fault read_value(self, Text *t, Py_ssize_t i, const char *start) noexcept nogil:
        """Read the value of a column; the key is at ``start``."""
        cdef const char *text = t.p
        cdef const char *stop = NULL
        cdef char *out = t.out
        cdef Py_ssize_t size = 0
        cdef unsigned char kind = BYTES[<unsigned char>text[0]]
        cdef Column *column = &self.columns[i]
        cdef bint nested = column.nested
        cdef bint stored = i and (self.fields or not nested) and not column.left_out
        cdef Fault fault
        if text[0] == c'"':
            fault = read_string(t, &text, &size)
            if fault:
                return fault
        elif kind == OPEN:
            if text[0] == c'{':
                self.has_objects = True
            else:
                self.has_lists = True
            self.keys.n = 0
            fault = flatten(t, self.max_depth, &self.keys if i else NULL)
            if fault == FINE and not ends_value(t.p, t.end):
                fault = NOT_JSON
            if fault:
                return BROKEN if fault == NOT_JSON and nested else fault
            text, size = out, t.out - out
            if not stored:
                t.out = out
            i |= MARK_BIT
        elif is_null(text, t.end):
            t.p += 4
            text = NULL
        else:
            if kind == DIGIT:
                stop = end_of_number(text, t.end)
            elif kind == LITERAL:
                stop = end_of_literal(text, t.end)
                if stop is NULL or not ends_value(stop, t.end):
                    return NOT_LITERAL
            if stop is NULL:
                return BROKEN
            t.p = stop
            size = stop - text
            i |= MARK_BIT
        if stored and not self.put_value(column, i, text, size):
            return NO_MEMORY
        if nested:
            if (self.lines_end - 1)[0] != c'{':
                self.put_line(b",", 1)
            self.put_line(start, t.p - start)
        return FINE

    cdef inline void put_line(self, const char *text, Py_ssize_t size) noexcept nogil:
        """Append text to the lines of nested values, which are never longer than the block."""
        if self.n_nested:
            memcpy(self.lines_end, text, size)
            self.lines_end += size

    cdef inline bint put_value(
        self, Column *column, Py_ssize_t number, const char *text, Py_ssize_t size
    ) noexcept nogil:
        """Store a value; return False if out of memory."""
        cdef Value *value
        if self.n_values == self.room_of_values and not self.grow_values():
            return False
        value = &self.values[self.n_values]
        self.n_values += 1
        value.text, value.size, value.column = text, <uint32_t>size, <uint32_t>number
        add_size(column, value)
        return True

    # The table of columns.

    cdef Py_ssize_t find_column(self, const char *name, Py_ssize_t size) noexcept nogil:
        """Return the column number of a name, which may be new; 0 for none; a negated Fault."""
        cdef uint64_t hash = hashed(name, size)
        cdef Py_ssize_t i, slot = hash & (self.n_slots - 1)
        cdef Column *column
        while self.slots[slot]:
            column = &self.columns[self.slots[slot]]
            if column.hash == hash and column.name_size == size and (
                memcmp(column.name, name, size) == 0
            ):
                return self.slots[slot]
            slot = slot + 1 & (self.n_slots - 1)
        if self.known_only and not self.documents:
            return 0
        if not is_utf8(name, size):
            return -<Py_ssize_t>NOT_UTF8
        i = self.add_column(name, size)
        if i > 0:
            self.columns[i].left_out = self.known_only
        return i

    cdef Py_ssize_t add_column(self, const char *name, Py_ssize_t size) noexcept nogil:
        """Add a column, and return its number; if out of memory, return the negated Fault."""
        cdef Py_ssize_t i = self.n_columns, k
        cdef Column *column
        if i == self.room_of_columns and not self.grow_columns():
            return -<Py_ssize_t>NO_MEMORY
        self.n_columns += 1
        column = &self.columns[i]
        memset(column, 0, sizeof(Column))
        column.name, column.name_size, column.row = name, size, -1
        column.hash = hashed(name, size)
        column.plain = i > 0
        for k in range(size):
            column.plain = column.plain and PLAIN[<unsigned char>name[k]]
        for k in range(self.n_nested if i else 0):
            if self.nested[k].size == size and memcmp(self.nested[k].text, name, size) == 0:
                column.nested = True
        if i:
            self.add_slot(i)
        return i

    cdef void add_slot(self, Py_ssize_t i) noexcept nogil:
        """Put a column into the hash table."""
        cdef Py_ssize_t slot = self.columns[i].hash & (self.n_slots - 1)
        while self.slots[slot]:
            slot = slot + 1 & (self.n_slots - 1)
        self.slots[slot] = <uint32_t>i

    cdef bint grow_columns(self) noexcept nogil:
        """Double the room for columns, with two slots for each; return False if out of memory."""
        cdef Py_ssize_t i, room = max(2 * self.room_of_columns, 64)
        cdef void *columns = realloc(self.columns, room * sizeof(Column))
        cdef void *slots
        if columns is NULL or room > MAX_COLUMNS:
            return False
        self.columns = <Column *>columns
        slots = realloc(self.slots, 2 * room * sizeof(uint32_t))
        if slots is NULL:
            return False
        self.slots, self.n_slots, self.room_of_columns = <uint32_t *>slots, 2 * room, room
        memset(slots, 0, self.n_slots * sizeof(uint32_t))
        for i in range(1, self.n_columns):
            self.add_slot(i)
        return True

    cdef bint grow_values(self) noexcept nogil:
        cdef Py_ssize_t room = max(2 * self.room_of_values, FIRST_ROOM)
        cdef void *values = realloc(self.values, room * sizeof(Value))
        if values is NULL:
            return False
        self.values, self.room_of_values = <Value *>values, room
        return True

    cdef bint grow_rows(self) noexcept nogil:
        cdef Py_ssize_t room = max(2 * self.room_of_rows, FIRST_ROOM)
        cdef void *starts = realloc(self.starts, room * sizeof(Py_ssize_t))
        if starts is NULL:
            return False
        self.starts, self.room_of_rows = <Py_ssize_t *>starts, room
        return True


cdef inline void skip_spaces(Text *t) noexcept nogil:
    while BYTES[<unsigned char>t.p[0]] == SPACE:
        t.p += 1


cdef inline Fault read_string(Text *t, const char **text, Py_ssize_t *size) noexcept nogil:
    """Read a string, which is copied only if it has escapes."""
    cdef const char *p = t.p + 1
    cdef char *out = t.out
    cdef Fault fault
    while PLAIN[<unsigned char>p[0]]:
        p += 1
    if p[0] == c'"':
        text[0], size[0] = t.p + 1, p - t.p - 1
        t.p = p + 1
        return FINE
    if p[0] != c'\\':
        return BROKEN
    t.p += 1
    fault = unescape(t)
    text[0], size[0] = out, t.out - out
    return fault


# Values as columns, with the memory layout of Arrow.


cdef inline Py_ssize_t start(Split split, Py_ssize_t row) noexcept nogil:
    """Return the index of a row's first value."""
    return split.starts[row] if row < split.rows else split.n_values


cdef inline Column *column_of(Split split, Py_ssize_t i) noexcept nogil:
    """Return the column of a value."""
    return &split.columns[split.values[i].column & ~MARK_BIT]


def columns_of(Split split, Py_ssize_t first, Py_ssize_t last, list columns):
    """Return columns of strings for some rows, in the memory layout of Arrow.

    Args:
        first, last: the range of rows; ``last`` is excluded.
        columns: column numbers: 0 for whole rows; names begin at 1.

    Returns:
        The memory, and for each column a tuple of the number of nulls and four positions in the
        memory: the start of the validity bitmap (-1 if there are no nulls), the start of the
        offsets, the start of the text, and the end of the text.
    """
    cdef Py_ssize_t i, size = 0, rows = last - first
    cdef Py_ssize_t bits = aligned((rows + 7) // 8), ends = aligned((rows + 1) * 4)
    cdef Column *column
    cdef bytes memory
    cdef char *base
    cdef list positions = []
    for i in columns:
        column = &split.columns[i]
        column.chosen, column.filled = True, 0
        if rows < split.rows:
            column.count = column.size = 0
    for i in range(start(split, first), start(split, last) if rows < split.rows else 0):
        if column_of(split, i).chosen:
            add_size(column_of(split, i), &split.values[i])
    for i in columns:
        column = &split.columns[i]
        size += (bits if column.count < rows else 0) + ends + aligned(column.size)
    memory = PyBytes_FromStringAndSize(NULL, size)
    base = PyBytes_AS_STRING(memory)
    size = 0
    for i in columns:
        column = &split.columns[i]
        column.validity = NULL
        position = -1
        if column.count < rows:
            column.validity, position = <uint8_t *>base + size, size
            size += bits
        column.offsets = <int32_t *>(base + size)
        column.text = base + size + ends
        positions.append((
            rows - column.count, position, size, size + ends, size + ends + column.size
        ))
        size += ends + aligned(column.size)
        column.offsets[0] = 0
        if column.validity is not NULL:
            memset(column.validity, 0, bits)
    with nogil:
        for i in range(rows):
            copy_row(split, start(split, first + i), start(split, first + i + 1), i)
    for i in columns:
        fill(&split.columns[i], rows)
        split.columns[i].chosen = False
    return memory, positions


def fields_of(Split split, Py_ssize_t first, Py_ssize_t last, list left_out):
    """Return the fields of some rows, in the memory layout of Arrow.

    Args:
        first, last: the range of rows; ``last`` is excluded.
        left_out: the numbers of the columns whose values are left out.

    Returns:
        The memory, which begins with the offsets of the rows, and a tuple of the number of fields,
        the number of nulls, and five positions in the memory: the start of the name numbers, the
        start of the values' validity bitmap, the start of the values' offsets, the start of the
        values' text, and the end of this text.
    """
    cdef Py_ssize_t i, rows = last - first
    # Some values may be left out. All text is part of the block, except for MARK.
    cdef Py_ssize_t max_fields = start(split, last) - start(split, first)
    cdef Py_ssize_t keys = aligned((rows + 1) * 4), bits = keys + aligned(max_fields * 4)
    cdef Py_ssize_t ends = bits + aligned((max_fields + 7) // 8)
    cdef Py_ssize_t text = ends + aligned((max_fields + 1) * 4)
    cdef bytes memory = PyBytes_FromStringAndSize(NULL, text + PyBytes_GET_SIZE(split.block))
    cdef char *base = PyBytes_AS_STRING(memory)
    cdef int32_t *rows_end = <int32_t *>base
    cdef Fields out
    memset(base + bits, 0, ends - bits)
    out.count = out.nulls = 0
    out.numbers, out.validity = <int32_t *>(base + keys), <uint8_t *>base + bits
    out.offsets, out.text = <int32_t *>(base + ends), base + text
    out.offsets[0] = rows_end[0] = 0
    for i in [0, *left_out]:
        split.columns[i].chosen = True
    with nogil:
        for i in range(rows):
            add_fields(split, start(split, first + i), start(split, first + i + 1), &out)
            rows_end[i + 1] = out.count
    for i in [0, *left_out]:
        split.columns[i].chosen = False
    return memory, (out.count, out.nulls, keys, bits, ends, text, out.text - base)


def names_of(Split split):
    """Return the offsets (32 bits each) and the text of the names of all columns."""
    cdef Py_ssize_t i, size = 0, n = split.n_columns - 1
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
    cdef int32_t *ends = <int32_t *>PyBytes_AS_STRING(offsets)
    ends[0] = 0
    for i in range(n):
        size += split.columns[i + 1].name_size
        ends[i + 1] = <int32_t>size
    cdef bytes text = PyBytes_FromStringAndSize(NULL, size)
    for i in range(n):
        memcpy(
            PyBytes_AS_STRING(text) + ends[i], split.columns[i + 1].name,
            split.columns[i + 1].name_size,
        )
    return offsets, text


cdef inline void add_fields(
    Split split, Py_ssize_t first, Py_ssize_t last, Fields *out
) noexcept nogil:
    """Append the values of a row, and the numbers of their names."""
    cdef Py_ssize_t i
    cdef int32_t count = out.count
    cdef Value *value
    for i in range(first, last):
        value = &split.values[i]
        if column_of(split, i).chosen:
            continue
        out.numbers[count] = <int32_t>(value.column & ~MARK_BIT) - 1
        if value.text is NULL:
            out.nulls += 1
        else:
            out.validity[count >> 3] |= 1 << (count & 7)
        out.offsets[count + 1] = <int32_t>(
            out.offsets[count] + value.size + (value.column >= MARK_BIT)
        )
        if value.column >= MARK_BIT:
            out.text[0] = <char>MARKED
            out.text += 1
        out.text = put_copy(out.text, value.text, value.size)
        count += 1
    out.count = count


cdef inline void copy_row(
    Split split, Py_ssize_t first, Py_ssize_t last, Py_ssize_t row
) noexcept nogil:
    """Copy the values of a row into their columns."""
    cdef Py_ssize_t i
    cdef Column *column
    cdef Value *value
    for i in range(first, last):
        value = &split.values[i]
        column = column_of(split, i)
        if not column.chosen or value.text is NULL:
            continue
        if column.filled < row:
            fill(column, row)
        if column.validity is not NULL:
            column.validity[row >> 3] |= 1 << (row & 7)
        if value.column >= MARK_BIT:
            column.text[0] = <char>MARKED
            column.text += 1
        column.text = put_copy(column.text, value.text, value.size)
        column.filled = row + 1
        column.offsets[row + 1] = <int32_t>(
            column.offsets[row] + value.size + (value.column >= MARK_BIT)
        )


cdef inline Py_ssize_t aligned(Py_ssize_t size) noexcept nogil:
    """Return a size rounded up to a multiple of 8, the alignment of Arrow's buffers."""
    return (size + 7) & ~7


cdef inline void fill(Column *column, Py_ssize_t row) noexcept nogil:
    """Set the missing offsets up to a row, for null values."""
    cdef int32_t end = column.offsets[column.filled]
    while column.filled < row:
        column.filled += 1
        column.offsets[column.filled] = end
