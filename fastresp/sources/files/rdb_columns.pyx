# cython: language_level=3, cdivision=True
"""Read the values of an RDB file as columns, without Python objects."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from ...encode.columns.arrow_out cimport StringColumn
from ...encode.columns.growing cimport (
    GrowingColumn,
    clear,
    end_value,
    first_invalid,
    grow_places,
    put_bytes,
    put_null,
    take_rows,
)
from ...encode.payload.encoding cimport Word, read_integer
from ...encode.strings cimport hashed
from ...encode.payload.stored_values cimport Elements
from .rdb cimport AT_KEY, Entry, RdbReader, Step

from ...encode.columns.arrow_out import StringBatch, time_column
from ...outcome.errors import DecodeError, SourceError
from ...outcome.messages import Hint, Message

cdef enum:
    # A batch ends at this number of rows or bytes.
    BATCH_ROWS = 65536
    BATCH_BYTES = 8 << 20
    # Maximum number of fields per hash whose columns are guessed from the previous hash.
    GUESSES = 256
    FIRST_SLOTS = 64

cdef enum Stop:
    MORE            # continue with the next row
    FULL            # the batch is full
    AT_STEP         # the reader needs Python
    BAD_VALUE       # a value is damaged
    TWICE           # a hash has a field twice; see RdbColumns.twice
    NO_MEMORY


cdef class FieldNames:
    """The names of fields, in order, and a hash table to find them.

    Args:
        names: bytes objects; without duplicates.

    Attributes:
        names: the names.
    """

    cdef readonly list names
    cdef Word *words                # owned: the names
    cdef int *slots                 # owned: indexes of names, plus 1
    cdef Py_ssize_t n_slots         # a power of two
    cdef int[GUESSES] guesses       # for each place in a hash, the name that was there last

    def __init__(self, names=()):
        self.names = []
        for name in names:
            self.add(name)

    def __dealloc__(self):
        free(self.words)
        free(self.slots)

    cdef int add(self, bytes name) except -1:
        cdef Py_ssize_t n = len(self.names), at
        if 2 * n >= self.n_slots:
            self.grow()
        self.names.append(name)
        self.words[n].text, self.words[n].size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        at = hashed(self.words[n].text, self.words[n].size) & self.n_slots - 1
        while self.slots[at]:
            at = at + 1 & self.n_slots - 1
        self.slots[at] = <int>n + 1
        return 0

    cdef int grow(self) except -1:
        """Double the table, and add the names again."""
        cdef Py_ssize_t n_slots = max(FIRST_SLOTS, 2 * self.n_slots)
        cdef int *slots = <int *>calloc(n_slots, sizeof(int))
        cdef Word *words = <Word *>realloc(self.words, n_slots * sizeof(Word))
        cdef list names = self.names
        if words is not NULL:
            self.words = words
        if slots is NULL or words is NULL:
            free(slots)
            raise MemoryError("no memory for the names of fields")
        free(self.slots)
        self.slots, self.n_slots, self.names = slots, n_slots, []
        for name in names:
            self.add(name)
        return 0

    cdef int find(self, const Word *name, Py_ssize_t place) noexcept nogil:
        """Return the index of a name; -1 if the name is unknown.

        Args:
            place: the index of the field in its hash; similar hashes have the same field there.
        """
        cdef Py_ssize_t at
        cdef int found
        if place < GUESSES and self.n_slots:
            found = self.guesses[place]
            if same(&self.words[found], name):
                return found
        at = hashed(name.text, name.size) & self.n_slots - 1
        while self.n_slots and self.slots[at]:
            found = self.slots[at] - 1
            if same(&self.words[found], name):
                if place < GUESSES:
                    self.guesses[place] = found
                return found
            at = at + 1 & self.n_slots - 1
        return -1


cdef inline bint same(const Word *one, const Word *other) noexcept nogil:
    return one.size == other.size and memcmp(one.text, other.text, one.size) == 0


cdef object damaged(RdbReader reader, error):
    """Return the error for a value whose contents are damaged."""
    return error if isinstance(error, MemoryError) else reader.damaged(str(error))


def field_names(RdbReader reader, Py_ssize_t most, *, bint streams):
    """Return the names of all fields that a reader finds, in order of appearance.

    Args:
        reader: wants only hashes, or only streams.
        streams: whether it wants streams.
        most: stop after this number of names.

    Raises:
        SourceError: the file is damaged.
    """
    cdef FieldNames found = FieldNames()
    cdef Elements elements = Elements()
    cdef Entry entry
    cdef Step step
    cdef Py_ssize_t place
    cdef int64_t left
    while len(found.names) < most:
        step = reader.step(&entry)
        if step != AT_KEY:
            if not reader.advance(step):
                break
            continue
        place = left = 0
        elements.open(entry.kind, entry.value, entry.size)
        while elements.next_item() > 0:
            if streams and left == 0:
                read_integer(elements.item[1].text, elements.item[1].size, &left)
                place = 0
                continue
            if found.find(&elements.item[0], place) < 0:
                found.add(elements.item[0].text[:elements.item[0].size])
            place += 1
            left -= streams
        if elements.fault is not NULL:
            raise damaged(reader, elements.error())
    return found.names


cdef class RdbColumns:
    """Collects values from a reader, and returns them as columns.

    A hash is one row; a stream has one row per entry, and other values one per element.

    Args:
        reader: wants only values of one type.
        names: the names of the columns: of the key, and of the fields or the parts of an element.
        text: for each column, whether its values must be UTF-8.
        fields: for hashes and streams, the names of the fields as bytes; None for other types.
        streams: whether the values are streams.
        head, tail: the number of bytes to cut off at the start and the end of each key.
        ttl: the name of a last column, with expiry times in ms since 1970; None for no such column.
    """

    cdef RdbReader reader
    cdef Elements elements
    cdef FieldNames fields
    cdef tuple names
    cdef str ttl
    cdef Py_ssize_t head, tail
    cdef GrowingColumn *columns     # owned: n columns
    cdef Py_ssize_t n
    cdef int64_t *times             # owned: when each row's key expires; -1 for never
    cdef Py_ssize_t places          # capacity of times
    cdef int64_t held               # bytes of the rows
    cdef Entry entry                # the key of the open value
    cdef bint opened                # whether a value is open
    cdef bint streams
    cdef Step at                    # why the reader stopped
    cdef object error               # the error that take() has yet to raise
    cdef int twice                  # the field that a hash has twice

    def __cinit__(
        self, RdbReader reader, names, text, *, fields=None, bint streams=False,
        Py_ssize_t head=0, Py_ssize_t tail=0, ttl=None,
    ):
        cdef Py_ssize_t i
        self.reader, self.elements = reader, Elements()
        self.names, self.n, self.ttl = tuple(names), len(names), ttl
        self.fields = None if fields is None else FieldNames(fields)
        self.streams, self.head, self.tail = streams, head, tail
        self.columns = <GrowingColumn *>calloc(self.n, sizeof(GrowingColumn))
        if self.columns is NULL:
            raise MemoryError(f"no memory for {self.n:,} columns")
        for i in range(self.n):
            self.columns[i].text = text[i]
            if not grow_places(&self.columns[i]):
                raise MemoryError(f"no memory for {self.n:,} columns")

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.columns is not NULL:
            for i in range(self.n):
                clear(&self.columns[i])
            free(self.columns)
        free(self.times)

    def take(self):
        """Return the next rows as a StringBatch; None after the last.

        Raises:
            SourceError: the file is truncated or damaged.
            DecodeError: a value of a text column is not UTF-8.
        """
        cdef Stop stop = MORE
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.held = 0
        while stop == MORE:
            with nogil:
                stop = self.collect()
            if stop == AT_STEP:
                try:
                    if not self.reader.advance(self.at):
                        break
                except SourceError as error:
                    if self.columns[0].length == 0:
                        raise
                    self.error = error  # for the next call: these rows are whole
                    break
                stop = MORE
        if stop == NO_MEMORY:
            raise MemoryError("no memory for the values of a file")
        if stop == TWICE:
            name = self.fields.names[self.twice]
            what = "an entry of a stream" if self.streams else "a hash"
            raise SourceError(
                f"{what} has the field {name!r} twice, and its column has one value per row; "
                "choose other fields"
            )
        if stop == BAD_VALUE:
            raise damaged(self.reader, self.elements.error())
        return self.batch() if self.columns[0].length else None

    cdef Stop collect(self) noexcept nogil:
        """Add rows until the batch is full, or Python is needed."""
        cdef Stop stop
        while self.held < BATCH_BYTES and self.columns[0].length < BATCH_ROWS:
            if not self.opened:
                self.at = self.reader.step(&self.entry)
                if self.at != AT_KEY:
                    return AT_STEP
                self.elements.open(self.entry.kind, self.entry.value, self.entry.size)
                self.opened = True
            stop = (
                self.add_element() if self.fields is None
                else self.add_entry() if self.streams else self.add_hash()
            )
            if stop != MORE:
                return stop
        return FULL

    cdef Stop add_element(self) noexcept nogil:
        """Add the next element of the open value as a row, or close the value."""
        cdef int found = self.elements.next_item(), i
        if found <= 0:
            self.opened = False
            return MORE if found == 0 else BAD_VALUE
        for i in range(1, self.n):
            if not self.put(&self.columns[i], &self.elements.item[i - 1]):
                return NO_MEMORY
        return MORE if self.put_key() else NO_MEMORY

    cdef Stop add_entry(self) noexcept nogil:
        """Add the next entry of the open stream as a row, or close the stream."""
        cdef int found = self.elements.next_item()
        cdef int64_t fields = 0
        if found <= 0:
            self.opened = False
            return MORE if found == 0 else BAD_VALUE
        # An entry begins with its ID and the number of its fields.
        read_integer(self.elements.item[1].text, self.elements.item[1].size, &fields)
        if not self.put(&self.columns[1], &self.elements.item[0]):
            return NO_MEMORY
        return self.add_fields(2, fields)

    cdef Stop add_hash(self) noexcept nogil:
        """Add the open hash as a row, and close it."""
        self.opened = False
        return self.add_fields(1, -1)

    cdef Stop add_fields(self, Py_ssize_t first, int64_t count) noexcept nogil:
        """Add fields as a row.

        Args:
            first: the index of the first field's column.
            count: the number of fields; -1 for all that follow.
        """
        cdef int64_t row = self.columns[0].length
        cdef Py_ssize_t place = 0, i
        cdef GrowingColumn *column
        cdef int found = 0
        while place != count:
            found = self.elements.next_item()
            if found <= 0:
                break
            i = self.fields.find(&self.elements.item[0], place)
            place += 1
            if i < 0:
                continue
            column = &self.columns[first + i]
            if column.length != row:
                self.twice = <int>i
                return TWICE
            if not self.put(column, &self.elements.item[1]):
                return NO_MEMORY
        if found < 0:
            return BAD_VALUE
        for i in range(first, self.n):
            if self.columns[i].length == row and not put_null(&self.columns[i]):
                return NO_MEMORY
        return MORE if self.put_key() else NO_MEMORY

    cdef inline bint put(self, GrowingColumn *column, const Word *word) noexcept nogil:
        self.held += word.size
        return put_bytes(column, word.text, word.size) and end_value(column)

    cdef inline bint put_key(self) noexcept nogil:
        """Add the columns of the key: the wanted part of the key, and when it expires."""
        cdef GrowingColumn *column = &self.columns[0]
        cdef Word part = self.entry.key
        cdef int64_t *times
        if self.ttl is not None:
            if column.length == self.places:
                times = <int64_t *>realloc(self.times, (2 * self.places + 64) * sizeof(int64_t))
                if times is NULL:
                    return False
                self.times, self.places = times, 2 * self.places + 64
            self.times[column.length] = self.entry.expires
        part.text += self.head
        part.size = max(part.size - self.head - self.tail, 0)
        return self.put(column, &part)

    cdef object batch(self):
        """Remove the rows, and return them as columns."""
        cdef int64_t rows = self.columns[0].length, row
        cdef Py_ssize_t i
        cdef list columns = []
        cdef GrowingColumn *keys = &self.columns[0]
        for i in range(self.n):
            row = first_invalid(&self.columns[i]) if self.columns[i].text else -1
            if row >= 0:
                name, key = self.names[i], keys.data[keys.offsets[row]:keys.offsets[row + 1]]
                message = f"{name!r} of the key with {self.names[0]} {key[:40]!r} is not UTF-8; "
                advice = (f"name {name!r} ", Hint("binary", ..., "in"), " to get bytes")
                raise DecodeError(Message(message, *advice), key=key, column=name)
        for i in range(self.n):
            columns.append(StringColumn.of(take_rows(&self.columns[i], rows)))
        names = self.names
        if self.ttl is not None:
            times = [None if self.times[i] < 0 else self.times[i] for i in range(rows)]
            columns.append(time_column(times))
            names += (self.ttl,)
        return StringBatch(names, columns)
