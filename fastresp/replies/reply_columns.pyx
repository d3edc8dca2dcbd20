# cython: language_level=3, cdivision=True
"""Parse replies that are arrays of bulk strings into columns, without Python objects."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from ..encode.columns.arrow_out cimport StringColumn
from ..encode.columns.growing cimport (
    GrowingColumn, clear, end_value, first_invalid, grow_places, put_bytes, put_null, take_rows,
)
from ..resp.grammar cimport ELEMENT_BYTES, Incoming, beyond, is_crlf, length_end, pass_crlf

from ..encode.columns.arrow_out import StringBatch


# Why scanning stopped.
cdef enum Stop:
    AT_END          # all bytes are read
    AT_LINE         # at an incomplete line, an error reply, or an unexpected line
    AT_EXCESS       # at a byte that is not part of the CRLF expected after a value
    AT_LARGE        # at a value larger than the limit of a reply
    NO_MEMORY


cdef class ReplyColumns(Incoming):
    """Collects the items of replies into n columns: item j of a reply is added to column j % n.

    A reply is an array of bulk strings and nulls, or an error.

    Args:
        names: the names of the n columns.
        text: for each column, whether its values must be UTF-8; or one bool for all columns.
        fixed: whether every reply is one row. If True, an error makes a row of nulls, and an array
            must have n items. If False, an array may have any multiple of n items, and an error or
            a null array makes no row.
        max_reply_bytes: a larger reply is refused; None for 512 MiB. Each item counts 64 bytes more
            than its size.

    Attributes:
        replies: the number of complete replies so far.
        errors: a list of ``(index of the reply, text)``; the caller empties the list.
        absent: a list of the indices of replies that are null arrays; the caller empties the list.
        invalid: the first value of a text column that is not UTF-8, as ``(row, column)``, with the
            row counted over all batches; None if there is no such value.
        offset: the number of bytes parsed so far.
    """

    cdef readonly Py_ssize_t replies
    cdef readonly list errors
    cdef readonly list absent
    cdef readonly tuple invalid
    cdef readonly tuple names
    cdef GrowingColumn *columns     # owned: n columns
    cdef Py_ssize_t n
    cdef bint fixed
    cdef Py_ssize_t before      # number of rows taken so far
    cdef int64_t left           # number of items that the current array still lacks
    cdef Py_ssize_t column      # column of the next item
    cdef long long missing      # number of bytes that the current value and its CRLF still lack

    def __cinit__(self, names, *, text=True, bint fixed=True, max_reply_bytes=None):
        cdef Py_ssize_t i
        self.names = tuple(names)
        self.n = len(self.names)
        kinds = [text] * self.n if isinstance(text, bool) else list(text)
        if self.n == 0 or len(kinds) != self.n:
            raise ValueError("names needs at least one column, and text one bool for each")
        self.fixed = fixed
        self.what = "arrays of bulk strings"
        self.errors, self.absent = [], []
        self.columns = <GrowingColumn *>calloc(self.n, sizeof(GrowingColumn))
        if self.columns is NULL:
            raise MemoryError(f"no memory for {self.n:,} columns")
        for i in range(self.n):
            self.columns[i].text = kinds[i]
            if not grow_places(&self.columns[i]):
                raise MemoryError(f"no memory for {self.n:,} columns")

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.columns is not NULL:
            for i in range(self.n):
                clear(&self.columns[i])
            free(self.columns)

    @property
    def rows(self):
        """The number of complete rows that ``take()`` can return."""
        return self.columns[self.n - 1].length

    @property
    def nbytes(self):
        """The number of bytes of the values that ``take()`` has not returned yet."""
        cdef Py_ssize_t i
        cdef int64_t total = 0
        for i in range(self.n):
            total += self.columns[i].size
        return total

    @property
    def pending(self):
        """Whether the last reply is incomplete."""
        return self.cut or self.left > 0

    def feed(self, data):
        """Parse the next bytes of a stream; return the number of replies that they complete.

        Raises:
            ProtocolError: the bytes are not valid replies. Every later call raises the same error.
            RuntimeError: another call on this object is running.
        """
        cdef Py_ssize_t before = self.replies
        self.take_piece(data)
        return self.replies - before

    def take(self, most=None):
        """Remove the complete rows, and return them as a StringBatch; None if there are no rows.

        Args:
            most: the maximum number of rows; the remaining rows are copied, and stay for the next
                call.

        Raises:
            ValueError: a value of a text column is not UTF-8; see ``invalid``.
        """
        cdef Py_ssize_t i
        cdef int64_t rows = self.rows if most is None else min(self.rows, most)
        self.check_free()
        if self.invalid is not None:
            raise ValueError("row {:,}, column {:,}: this text is not UTF-8".format(*self.invalid))
        if rows == 0:
            return None
        self.reading = True
        try:
            columns = [StringColumn.of(take_rows(&self.columns[i], rows)) for i in range(self.n)]
        except BaseException as fault:
            self.fault = fault
            raise
        finally:
            self.reading = False
        self.before += rows
        return StringBatch(self.names, columns)

    cdef int check_free(self) except -1:
        if self.reading:
            raise RuntimeError("these columns are in use by another thread; create one per thread")
        return Incoming.check_free(self)

    cdef int read(self, const char *p, const char *end) except -1:
        cdef Py_ssize_t before = self.replies
        self.read_replies(p, end)
        self.check_text()
        self.count_unanswered(self.replies > before, end - p)
        return 0

    cdef int read_replies(self, const char *p, const char *end) except -1:
        cdef Stop stop = AT_END
        while p < end:
            if not self.cut:
                with nogil:
                    p = self.scan(p, end, &stop)
                if stop == NO_MEMORY:
                    raise MemoryError("no memory for the values of replies")
                if stop == AT_EXCESS:
                    raise self.excess(p)
                if stop == AT_LARGE:
                    raise self.too_large(self.offset_of(p))
                if stop == AT_END:
                    break
                self.begin_line(p)
                if self.left and self.kind != c'$':
                    raise self.error("an item is not a bulk string", p)
                if self.left == 0 and self.kind != c'*' and self.kind != c'-':
                    raise self.error("a reply is not an array", p)
            p = self.next_line(p, end)
            if self.text is not NULL:
                self.take_line(self.text, self.text_end)
        return 0

    cdef const char *scan(self, const char *p, const char *end, Stop *stop) noexcept nogil:
        """Parse as much as possible without Python; set ``stop`` to the reason for stopping."""
        cdef GrowingColumn *column
        cdef const char *value
        cdef const char *line
        cdef long long n = 0
        stop[0] = AT_END
        while p < end:
            if self.missing:
                p = self.read_value(p, end, stop)
                if stop[0] != AT_END:
                    return p
                continue
            value = NULL
            if p[0] == (c'$' if self.left else c'*'):
                value = length_end(p + 1, end, &n)
            if value is NULL or self.left == 0 and not self.is_row(n):
                stop[0] = AT_LINE
                return p
            line, p = p, value
            if self.left == 0:
                self.open(n)
                continue
            column = self.columns + self.column
            if n < 0:
                if not put_null(column):
                    stop[0] = NO_MEMORY
                    return p
            elif end - p < n + 2:
                if n > self.most:
                    stop[0] = AT_LARGE
                    return line
                self.missing = n + 2
                continue
            else:
                if not is_crlf(p + n):
                    stop[0] = AT_EXCESS
                    return p + n + (p[n] == c'\r')
                if not put_bytes(column, p, n) or not end_value(column):
                    stop[0] = NO_MEMORY
                    return p
                p += n + 2
            self.end_item()
        return p

    cdef const char *read_value(self, const char *p, const char *end, Stop *stop) noexcept nogil:
        """Parse the received part of a value."""
        cdef GrowingColumn *column = self.columns + self.column
        cdef int64_t part = min(self.missing - 2, <int64_t>(end - p))
        if part > 0:
            if not put_bytes(column, p, part):
                stop[0] = NO_MEMORY
                return p
            self.missing -= part
            p += part
        p = pass_crlf(p, end, &self.missing)
        if self.missing == 0:
            if end_value(column):
                self.end_item()
            else:
                stop[0] = NO_MEMORY
        elif self.missing <= 2 and p < end:
            stop[0] = AT_EXCESS
        return p

    cdef inline bint is_row(self, int64_t n) noexcept nogil:
        """Return whether an array may have n items."""
        return 0 <= n <= self.most // ELEMENT_BYTES and (
            n == self.n if self.fixed else n % self.n == 0
        )

    cdef inline void open(self, int64_t n) noexcept nogil:
        self.left = n
        self.column = 0
        self.replies += n == 0

    cdef inline void end_item(self) noexcept nogil:
        self.column += 1
        if self.column == self.n:
            self.column = 0
        self.left -= 1
        self.replies += self.left == 0

    cdef int take_line(self, const char *p, const char *end) except -1:
        """Handle a complete line at which ``scan()`` stopped."""
        cdef long long n
        if self.kind == c'-':
            self.take_error(p[:end - p])
        elif length_end(p, end + 2, &n) is NULL:
            raise self.error("a line has an invalid value", self.at)
        elif self.left:
            self.begin_value(n)
        elif n < 0 and not self.fixed:
            self.absent.append(self.replies)
            self.replies += 1
        elif self.is_row(n):
            self.open(n)
        else:
            raise self.error(self.wanted(n), self.at)
        return 0

    cdef int take_error(self, bytes text) except -1:
        cdef Py_ssize_t i
        self.errors.append((self.replies, text))
        self.replies += 1
        for i in range(self.n if self.fixed else 0):
            self.add_null(i)
        return 0

    cdef int begin_value(self, long long n) except -1:
        if n > self.most:
            raise self.too_large(self.line_offset)
        if n < 0:
            self.add_null(self.column)
            self.end_item()
        else:
            self.missing = n + 2
        return 0

    cdef int add_null(self, Py_ssize_t column) except -1:
        if not put_null(&self.columns[column]):
            raise MemoryError("no memory for the values of replies")
        return 0

    cdef str wanted(self, int64_t n):
        if n > self.most // ELEMENT_BYTES:
            return beyond(f"an array of {n:,} items", self.most)
        what = "a null array" if n < 0 else f"an array of {n:,} item{'' if n == 1 else 's'}"
        return f"{what}, where {'' if self.fixed else 'a multiple of '}{self.n:,} are expected"

    cdef int check_text(self) except -1:
        """Check the values added since the last call; set ``invalid`` if one is not UTF-8."""
        cdef Py_ssize_t i
        cdef int64_t at
        for i in range(self.n):
            if self.columns[i].text:
                with nogil:
                    at = first_invalid(&self.columns[i])
                if at >= 0 and (self.invalid is None or self.before + at < self.invalid[0]):
                    self.invalid = (self.before + at, i)
        return 0


def string_column(list values, *, Py_ssize_t head=0, Py_ssize_t tail=0, bint text=True):
    """Return values as a StringColumn.

    Args:
        values: bytes objects, or None for a null.
        head, tail: the number of bytes to cut off at the start and the end of each value.
        text: whether the values must be UTF-8.

    Raises:
        UnicodeDecodeError: a value is not UTF-8; the exception's ``object`` is the value.
        ValueError: a value is shorter than head and tail together.
    """
    cdef GrowingColumn column
    cdef bytes value
    cdef int64_t at
    cdef Py_ssize_t size
    cdef bint stored
    memset(&column, 0, sizeof(GrowingColumn))
    column.text = text
    try:
        if not grow_places(&column):
            raise MemoryError("no memory for a column")
        for value in values:
            if value is None:
                stored = put_null(&column)
            elif len(value) < head + tail:
                raise ValueError(f"{value!r:.60} is shorter than {head + tail} bytes")
            else:
                size = PyBytes_GET_SIZE(value) - head - tail
                stored = put_bytes(&column, PyBytes_AS_STRING(value) + head, size)
                stored = stored and end_value(&column)
            if not stored:
                raise MemoryError("no memory for a column")
        at = first_invalid(&column) if text else -1
        if at >= 0:
            value = values[at]
            value[head:len(value) - tail].decode()
        return StringColumn.of(take_rows(&column, column.length))
    finally:
        clear(&column)
