# cython: language_level=3, cdivision=True
"""Replies that are arrays of bulk strings, collected as columns, without Python objects."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from .arrow_out cimport StringColumn, Values
from ..encode.columns.as_json cimport character_size
from ..resp.grammar cimport (
    ELEMENT_BYTES,
    ERROR_BYTES,
    LINE_BYTES,
    NUMBER_BYTES,
    SHOWN_BYTES,
    beyond,
    endless,
    reply_limit,
)
from ..resp.scan cimport line_end

from ..outcome.errors import ProtocolError
from .arrow_out import StringBatch


cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* As realloc. From 4 MiB on in huge pages (Linux, a wish): fresh pages of 4 KiB cost five
       times as much as to fill them. Less than that malloc as a rule has from the last batch. */
    static char *fastresp_grown(char *memory, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t huge = 1 << 21;
        char *grown, *first;
        if (size >= 2 * huge) {
            grown = (char *)realloc(memory, size + huge);
            if (grown) {
                first = (char *)(((size_t)grown + huge - 1) & ~(huge - 1));
                (void)madvise(first, size & ~(huge - 1), MADV_HUGEPAGE);
            }
            return grown;
        }
    #endif
        return (char *)realloc(memory, size);
    }
    """
    char *grown "fastresp_grown"(char *memory, size_t size) noexcept nogil

# Room of a new column, in values and in bytes.
cdef int64_t FIRST_PLACES = 512
cdef int64_t FIRST_BYTES = 4096


# Why reading stopped.
cdef enum Stop:
    AT_END          # of what there is
    AT_LINE         # which is not all there, or an error, or none that is expected
    AT_EXCESS       # bytes where a value should end
    AT_LARGE        # a value of more bytes than a reply may have
    NO_MEMORY


cdef struct Growing:
    # A column while it grows. All memory is owned, from malloc.
    char *data
    int64_t size                # bytes, those of a value that is not whole among them
    int64_t room
    int64_t *offsets            # as many as there are values, and one
    unsigned char *valid        # a bit for each place, cleared for a null
    int64_t length              # whole values
    int64_t places              # that there is room for; a multiple of 8
    int64_t nulls
    int64_t expected            # bytes: as many as the last batch had
    int64_t checked             # so many values were looked at: they are UTF-8, or were told
    bint text


cdef class ReplyColumns:
    """Collect the items of replies, as their bytes come in: item j of each goes to column j % n.

    A reply is an array of bulk strings and nulls, or an error.

    Args:
        names: of the n columns.
        text: for each column whether it is to be UTF-8 text, and not any bytes; or a bool for all.
        fixed: every reply is one row. An error then makes a row of nulls; an array that does not
            have n items is a fault. Without it, arrays have a multiple of n items, and errors and
            null arrays none.
        max_reply_bytes: a larger reply is refused; None for 512 MiB. An item counts for 64 bytes
            besides its own.

    Attributes:
        replies: whole replies so far.
        errors: a list of ``(index of the reply, text)``, to be emptied by who reads it.
        absent: a list of the indexes of replies that were a null array, likewise.
        invalid: the first value of a text column that is not UTF-8, as ``(row, column)``, rows
            counted from the first of all; or None.
        offset: bytes understood so far.
    """

    cdef readonly Py_ssize_t replies
    cdef readonly list errors
    cdef readonly list absent
    cdef readonly tuple invalid
    cdef readonly tuple names
    cdef readonly Py_ssize_t offset
    cdef Growing *columns       # owned, n of them
    cdef Py_ssize_t n
    cdef bint fixed
    cdef Py_ssize_t before      # rows that were taken
    cdef int64_t left           # items of the array at hand that are still to come
    cdef Py_ssize_t column      # where the next item goes
    cdef int64_t missing        # bytes of the value at hand and its CRLF that are still to come
    cdef bytearray line         # the beginning of a line that the last piece cut off
    cdef Py_ssize_t line_offset     # where in the stream its type byte is
    cdef const char *piece      # the bytes being read, for error messages
    cdef const char *piece_end
    cdef bint reading           # feed is at work
    cdef object fault           # what ended this, as a rule a ProtocolError
    cdef int64_t most           # bytes of a reply
    cdef int64_t unanswered     # bytes of the pieces since a reply became whole

    def __cinit__(self, names, *, text=True, bint fixed=True, max_reply_bytes=None):
        cdef Py_ssize_t i
        self.most = reply_limit(max_reply_bytes)
        self.names = tuple(names)
        self.n = len(self.names)
        kinds = [text] * self.n if isinstance(text, bool) else list(text)
        if self.n == 0 or len(kinds) != self.n:
            raise ValueError("there is at least one column, and 'text' has one bool for each")
        self.fixed = fixed
        self.errors, self.absent, self.line = [], [], bytearray()
        self.columns = <Growing *>calloc(self.n, sizeof(Growing))
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
        """Whole rows that can be taken."""
        return self.columns[self.n - 1].length

    @property
    def nbytes(self):
        """Bytes of the values since the last ``take()``."""
        cdef Py_ssize_t i
        cdef int64_t total = 0
        for i in range(self.n):
            total += self.columns[i].size
        return total

    @property
    def pending(self):
        """Whether a reply has begun and is not whole."""
        return self.left > 0 or len(self.line) > 0

    def feed(self, data):
        """Read the next bytes, cut anywhere; return how many replies became whole.

        Raises:
            ProtocolError: they are not such replies. So it is for every later call.
            RuntimeError: another call of this object's is not done.
        """
        cdef Py_ssize_t before
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.check_free()
            before = self.replies
            self.reading = True
            self.piece = <const char *>view.buf
            self.piece_end = self.piece + view.len
            try:
                self.read(self.piece, self.piece_end)
                self.check_text()
                self.unanswered = 0 if self.replies > before else self.unanswered + view.len
                if self.unanswered > self.most:
                    raise self.too_large(self.offset + view.len - self.unanswered)
            except BaseException as fault:
                # After a MemoryError, too, nobody knows what the next byte belongs to.
                self.fault = fault
                raise
            finally:
                self.reading = False
            self.offset += view.len
            return self.replies - before
        finally:
            PyBuffer_Release(&view)

    def take(self, most=None):
        """Give the whole rows since the last time as a StringBatch; None where there are none.

        Args:
            most: at most so many of them; the others are copied, and stay for the next time.

        Raises:
            ValueError: a text among them is not UTF-8, as ``invalid`` tells.
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
            columns = [StringColumn.of(cut(&self.columns[i], rows)) for i in range(self.n)]
        except BaseException as fault:
            self.fault = fault
            raise
        finally:
            self.reading = False
        self.before += rows
        return StringBatch(self.names, columns)

    cdef int check_free(self) except -1:
        if self.reading:
            raise RuntimeError("these columns are at work, in another thread")
        if self.fault is not None:
            # Else it would hold the frames of all the calls that raised it.
            raise self.fault.with_traceback(None)
        return 0

    cdef int read(self, const char *p, const char *end) except -1:
        cdef Stop stop = AT_END
        cdef const char *after
        if self.line and p < end:
            p = self.resume(p, end)
        while p < end:
            with nogil:
                p = self.scan(p, end, &stop)
            if stop == NO_MEMORY:
                raise MemoryError("no memory for the values of replies")
            if stop == AT_EXCESS:
                raise self.error("a bulk string is longer than its header says", p)
            if stop == AT_LARGE:
                raise self.too_large(self.offset + (p - self.piece))
            if stop == AT_END:
                break
            after = line_end(p, end)
            if after is NULL:
                self.line_offset = self.offset + (p - self.piece)
                self.line[:] = p[:end - p]
                self.check_line(p)
                break
            self.read_line(p[:min(after - 2 - p, ERROR_BYTES + 1)], p)
            p = after
        return 0

    cdef const char *scan(self, const char *p, const char *end, Stop *stop) noexcept nogil:
        """Read as far as there is nothing to be told to Python; say why it stopped."""
        cdef Growing *column
        cdef const char *value
        cdef const char *line
        cdef int64_t n = 0
        stop[0] = AT_END
        while p < end:
            if self.missing:
                p = self.read_value(p, end, stop)
                if stop[0] != AT_END:
                    return p
                continue
            value = header(p, end, c'$' if self.left else c'*', &n)
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
                if p[n] != c'\r' or p[n + 1] != c'\n':
                    stop[0] = AT_EXCESS
                    return p + n + (p[n] == c'\r')
                if not put_bytes(column, p, n) or not end_value(column):
                    stop[0] = NO_MEMORY
                    return p
                p += n + 2
            self.end_item()
        return p

    cdef const char *read_value(self, const char *p, const char *end, Stop *stop) noexcept nogil:
        """Take what there is of a value that came in pieces."""
        cdef Growing *column = self.columns + self.column
        cdef int64_t part = min(self.missing - 2, <int64_t>(end - p))
        if part > 0:
            if not put_bytes(column, p, part):
                stop[0] = NO_MEMORY
                return p
            self.missing -= part
            p += part
        while p < end:
            if p[0] != (c'\r' if self.missing == 2 else c'\n'):
                stop[0] = AT_EXCESS
                return p
            p += 1
            self.missing -= 1
            if self.missing == 0:
                if not end_value(column):
                    stop[0] = NO_MEMORY
                    return p
                self.end_item()
                break
        return p

    cdef inline bint is_row(self, int64_t n) noexcept nogil:
        """Whether an array may have so many items."""
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

    cdef const char *resume(self, const char *p, const char *end) except NULL:
        """Go on with a line that the last piece cut off."""
        cdef const char *stop = NULL
        if self.line[-1] == c'\r' and p[0] == c'\n':
            stop = p + 1
        else:
            stop = line_end(p, end)
        self.line += p[:(end if stop is NULL else stop) - p]
        self.check_line(NULL)
        if stop is NULL:
            return end
        self.read_line(bytes(self.line[:-2]), NULL)
        self.line.clear()
        return stop

    cdef int check_line(self, const char *at) except -1:
        """Keep no more of a line than is wanted of it."""
        if self.line[0] not in (b"$" if self.left else b"*-"):
            self.refuse(bytes(self.line), at)
        if self.line[0] == c'-':
            if self.offset + (self.piece_end - self.piece) - self.line_offset > LINE_BYTES:
                raise ProtocolError(endless(c'-'), self.line_offset)
            # The last two bytes may be the CRLF that ends the line.
            del self.line[ERROR_BYTES:max(ERROR_BYTES, len(self.line) - 2)]
        elif len(self.line) > NUMBER_BYTES + 3:
            raise self.error("a line has no end", at)
        return 0

    cdef int read_line(self, bytes line, const char *at) except -1:
        """Understand a whole line, without its CRLF.

        ``at``, for errors, is its type byte; NULL if that was in an earlier piece.
        """
        cdef int64_t n = 0
        cdef Py_ssize_t i
        cdef const char *text = line
        if self.left == 0 and text[0] == c'-':
            self.errors.append((self.replies, line[1:ERROR_BYTES]))
            self.replies += 1
            if self.fixed:
                for i in range(self.n):
                    if not put_null(&self.columns[i]):
                        raise MemoryError("no memory for the values of replies")
            return 0
        whole = line + b"\r\n"
        if header(whole, <const char *>whole + len(whole), c'$' if self.left else c'*', &n) is NULL:
            self.refuse(line, at)
        if self.left:
            if n > self.most:
                raise self.too_large(
                    self.line_offset if at is NULL else self.offset + (at - self.piece)
                )
            if n < 0:
                if not put_null(&self.columns[self.column]):
                    raise MemoryError("no memory for the values of replies")
                self.end_item()
            else:
                self.missing = n + 2
        elif n < 0 and not self.fixed:
            self.absent.append(self.replies)
            self.replies += 1
        elif self.is_row(n):
            self.open(n)
        else:
            raise self.error(self.wanted(n), at)
        return 0

    cdef object too_large(self, Py_ssize_t offset):
        return ProtocolError(beyond("the reply is too large", self.most), offset)

    cdef str wanted(self, int64_t n):
        if n > self.most // ELEMENT_BYTES:
            return beyond(f"an array of {n:,} items", self.most)
        what = "a null array" if n < 0 else f"an array of {n:,}"
        return f"{what}, and not of {'' if self.fixed else 'a multiple of '}{self.n:,} items"

    cdef int refuse(self, bytes line, const char *at) except -1:
        """Raise for a line that is none of an array of bulk strings."""
        if line[:1] == (b"$" if self.left else b"*"):
            raise self.error("a line has no proper value", at)
        kind = "an item is no bulk string" if self.left else "a reply is no array"
        raise self.error(kind, at)

    cdef object error(self, str message, const char *at):
        cdef Py_ssize_t offset = self.line_offset
        cdef const char *start
        cdef bytes around
        if at is NULL:
            around = bytes(self.line[:SHOWN_BYTES])
        else:
            offset = self.offset + (at - self.piece)
            start = at - min(SHOWN_BYTES, at - self.piece)
            around = start[:at - start + min(SHOWN_BYTES, self.piece_end - at)]
        shown = f": {around!r}" if around else ""
        return ProtocolError(f"not arrays of bulk strings: {message}{shown}", offset)

    cdef int check_text(self) except -1:
        """Look for what is not UTF-8 among the values that have become whole."""
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
    """A StringColumn of bytes objects, without so many bytes at their beginning and their end.

    Raises:
        UnicodeDecodeError: one is to be text, and is not UTF-8; its ``object`` is the value.
    """
    cdef Growing column
    cdef bytes value
    cdef int64_t at
    memset(&column, 0, sizeof(Growing))
    column.text = text
    try:
        if not grow_places(&column):
            raise MemoryError("no memory for a column")
        for value in values:
            if len(value) < head + tail:
                raise ValueError(f"{value!r:.60} is shorter than {head + tail} bytes")
            if not (
                put_bytes(
                    &column, PyBytes_AS_STRING(value) + head, PyBytes_GET_SIZE(value) - head - tail
                )
                and end_value(&column)
            ):
                raise MemoryError("no memory for a column")
        at = first_invalid(&column) if text else -1
        if at >= 0:
            value = values[at]
            value[head:len(value) - tail].decode()
        return StringColumn.of(cut(&column, column.length))
    finally:
        clear(&column)


cdef inline const char *header(
    const char *p, const char *end, char kind, int64_t *n
) noexcept nogil:
    """The byte after the line with a length if it is all there, and of this kind; else NULL."""
    cdef const char *first = p + 1
    cdef uint64_t value = 0
    if p[0] != kind:
        return NULL
    if end - first > 20:
        end = first + 20
    p = first
    while p < end and c'0' <= p[0] <= c'9':
        value = value * 10 + <uint64_t>(p[0] - 48)
        p += 1
    if p == first:
        if end - p < 4 or memcmp(p, b"-1\r\n", 4) != 0:
            return NULL
        n[0] = -1
        return p + 4
    if p - first > 18 or end - p < 2 or p[0] != c'\r' or p[1] != c'\n':
        return NULL
    n[0] = <int64_t>value
    return p + 2


cdef inline bint put_bytes(Growing *column, const char *p, int64_t n) noexcept nogil:
    """Append to the value at hand; False without memory."""
    if column.room - column.size < n and not grow_data(column, n):
        return False
    memcpy(column.data + column.size, p, n)
    column.size += n
    return True


cdef inline bint end_value(Growing *column) noexcept nogil:
    """The value at hand is whole; False without memory."""
    if column.length == column.places and not grow_places(column):
        return False
    column.length += 1
    column.offsets[column.length] = column.size
    return True


cdef inline bint put_null(Growing *column) noexcept nogil:
    cdef int64_t at = column.length
    if not end_value(column):
        return False
    column.valid[at >> 3] &= <unsigned char>~(1 << (at & 7))
    column.nulls += 1
    return True


cdef bint grow_data(Growing *column, int64_t n) noexcept nogil:
    """Make room for so many bytes more: for those of the last batch, or for twice as many."""
    cdef int64_t room = max(FIRST_BYTES, 2 * column.room, column.size + n)
    if column.room == 0:
        room = max(room, column.expected)
    cdef char *data = grown(column.data, room)
    if data is NULL:
        return False
    column.data, column.room = data, room
    return True


cdef bint grow_places(Growing *column) noexcept nogil:
    cdef int64_t places = max(FIRST_PLACES, 2 * column.places)
    cdef int64_t *offsets = <int64_t *>realloc(column.offsets, (places + 1) * sizeof(int64_t))
    cdef unsigned char *valid
    if offsets is NULL:
        return False
    column.offsets = offsets
    if column.places == 0:
        offsets[0] = 0
    valid = <unsigned char *>realloc(column.valid, places >> 3)
    if valid is NULL:
        return False
    memset(valid + (column.places >> 3), 0xFF, (places - column.places) >> 3)
    column.valid, column.places = valid, places
    return True


cdef void clear(Growing *column) noexcept nogil:
    free(column.data)
    free(column.offsets)
    free(column.valid)
    memset(column, 0, sizeof(Growing))


cdef Values *cut(Growing *column, int64_t rows) except NULL:
    """Cut off the first values; the column keeps the others, and the value at hand."""
    cdef Growing rest
    cdef int64_t start = column.offsets[rows]
    cdef Values *values = <Values *>calloc(1, sizeof(Values))
    memset(&rest, 0, sizeof(Growing))
    rest.text = column.text
    rest.expected = start + start // 16
    if not (
        values is not NULL and grow_places(&rest)
        and put_bytes(&rest, column.data + start, column.size - start)
        and put_ends(&rest, column, rows)
    ):
        free(values)
        clear(&rest)
        raise MemoryError("no memory for a batch of columns")
    rest.size = column.size - start
    rest.checked = max(column.checked - rows, 0)
    values.text, values.length, values.size = column.text, rows, start
    values.nulls = column.nulls - rest.nulls
    values.wide = start > INT32_MAX
    values.buffers[0] = bitmap_of(column, values)
    values.buffers[1] = offsets_of(column, values)
    # Cut smaller it would teach malloc to ask the system for the next batch's memory.
    values.buffers[2] = shrunk(column.data, start) if start <= column.room // 2 else column.data
    column[0] = rest
    return values


cdef bint put_ends(Growing *rest, Growing *column, int64_t rows) noexcept nogil:
    """End the values behind the first ones as they end in the column; False without memory."""
    cdef int64_t i
    for i in range(rows, column.length):
        rest.size = column.offsets[i + 1] - column.offsets[rows]
        if not (end_value(rest) if column.valid[i >> 3] >> (i & 7) & 1 else put_null(rest)):
            return False
    return True


cdef void *bitmap_of(Growing *column, Values *values) noexcept:
    if values.nulls:
        return shrunk(column.valid, (values.length + 7) >> 3)
    free(column.valid)
    return NULL


cdef void *offsets_of(Growing *column, Values *values) noexcept:
    """The offsets, in place: each of 32 bits is written before or where it was read."""
    cdef int64_t i
    cdef int32_t offset
    cdef char *narrow = <char *>column.offsets
    if values.wide:
        return shrunk(column.offsets, (values.length + 1) * sizeof(int64_t))
    for i in range(values.length + 1):
        offset = <int32_t>column.offsets[i]
        memcpy(narrow + i * sizeof(int32_t), &offset, sizeof(int32_t))
    return shrunk(narrow, (values.length + 1) * sizeof(int32_t))


cdef void *shrunk(void *memory, int64_t size) noexcept:
    """The same memory without what is not used; where it can't be had smaller, as it is."""
    cdef void *smaller = realloc(memory, max(size, 1))
    return memory if smaller is NULL else smaller


cdef int64_t first_invalid(Growing *column) noexcept nogil:
    """The first of the values not looked at yet that is not UTF-8; -1 where all are."""
    cdef int64_t start = column.offsets[column.checked], i
    cdef int64_t end = column.offsets[column.length]
    cdef int64_t first = column.checked
    column.checked = column.length
    if is_ascii(column.data + start, end - start):
        return -1
    for i in range(first, column.length):
        if not is_utf8(column.data + column.offsets[i], column.offsets[i + 1] - column.offsets[i]):
            return i
    return -1


cdef inline bint is_ascii(const char *p, int64_t n) noexcept nogil:
    cdef unsigned char bits = 0
    cdef int64_t i
    for i in range(n):
        bits |= <unsigned char>p[i]
    return bits < 0x80


cdef bint is_utf8(const char *p, int64_t n) noexcept nogil:
    cdef int64_t at = 0
    cdef Py_ssize_t size
    while at < n:
        size = character_size(p + at, n - at)
        if size == 0:
            return False
        at += size
    return True
