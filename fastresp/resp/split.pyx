# cython: language_level=3, cdivision=True
"""Split RESP from other programs into commands, and check the commands."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memchr, memcmp, memmove

from .buffer cimport PY_SSIZE_T_MAX, Buffer, Chunk, append, end_command, own_size, refuse, rollback
from .grammar cimport LENGTH_DIGITS, digits_end, is_crlf, known_length_end, length_end
from .values cimport check_command

from ..outcome.errors import EncodeError, ProtocolError

cdef enum:
    # '*' or '$', one digit more than a valid length, and CRLF.
    HEADER_BYTES = LENGTH_DIGITS + 4
    # Counted names are cut to this size.
    NAME_BYTES = 32
    # Further names are not counted separately: a file of garbage must not fill the memory.
    NAMES = 1000
    # The longest accepted command name.
    LONGEST_NAME = 65536
    # The number of bytes to keep of a command that is only inspected: enough for the name and for
    # messages.
    LOOKED_AT = LONGEST_NAME + 8192
    # Returned by header() for an incomplete header.
    NOT_WHOLE = -1
    NO_HEADER = -3


cdef class CommandSplitter:
    """Splits RESP, fed in pieces of any size, into chunks of whole commands.

    Only commands with exactly one reply are accepted. Inline commands, empty arrays, and commands
    that change the reply stream are refused. Empty lines between commands are dropped, since
    servers ignore empty lines.

    Args:
        limit: stop after this many commands; None to split all commands.
        count_names: whether to count the commands of each name.
        only_look: whether the commands are only inspected, not sent; if so, only the beginning of a
            large command is kept.

    Attributes:
        fault: the error that ended splitting; None if there is no error.
        largest: the size of the largest argument in bytes.
        largest_command: the index of the command with this argument.
        whole: stream offset of the end of the last whole command.
        last: stream offset of the start of the last whole command.
    """

    cdef Buffer buffer
    cdef Py_ssize_t at              # offset in the buffer of the first byte not parsed yet
    cdef Py_ssize_t start           # offset in the buffer of the current command
    cdef Py_ssize_t packed          # offset in the buffer of the end of the whole commands
    cdef Py_ssize_t taken           # number of bytes of the stream before the buffer
    cdef Py_ssize_t begun           # stream offset of the current command
    cdef readonly Py_ssize_t whole
    cdef readonly Py_ssize_t last
    cdef bint only_look
    cdef long long arguments        # number of missing arguments; 0 between commands
    cdef readonly object fault
    cdef long long payload          # size of the current argument; -1 before the argument's header
    cdef Py_ssize_t limit
    cdef readonly long long largest
    cdef readonly Py_ssize_t largest_command
    cdef dict counts                # number of commands by name; None if not requested
    cdef bytes name                 # name of the last command
    cdef long long same             # number of commands with this name that are not in counts yet

    def __cinit__(self, *, limit=None, bint count_names=False, bint only_look=False):
        self.buffer = Buffer(1 << 16)
        self.payload = -1
        self.limit = PY_SSIZE_T_MAX if limit is None else limit
        self.counts = {} if count_names else None
        self.only_look = only_look
        self.name = b""

    @property
    def max_bulk_bytes(self):
        """The maximum size of an argument in bytes; None for no limit."""
        return None if self.buffer.out.most == PY_SSIZE_T_MAX else self.buffer.out.most

    @max_bulk_bytes.setter
    def max_bulk_bytes(self, most):
        self.buffer.out.most = PY_SSIZE_T_MAX if most is None else most

    @property
    def commands(self):
        """The number of whole commands found so far."""
        return self.buffer.first_command + self.buffer.commands

    @property
    def missing(self):
        """The number of missing bytes of the current argument; 0 between arguments."""
        cdef Py_ssize_t have = own_size(&self.buffer.out) - self.at
        return max(0, self.payload + 2 - have) if self.payload >= 0 else 0

    @property
    def names(self):
        """The number of commands by name, in capitals."""
        self.settle()
        return {name.decode(errors="backslashreplace"): n for name, n in self.counts.items()}

    @property
    def pending(self):
        """The number of bytes kept of an incomplete command."""
        return own_size(&self.buffer.out) - self.start

    def feed(self, data):
        """Add bytes; return a Chunk of the completed commands, or None if no command is complete.

        An error after completed commands is stored in ``fault``, and raised by the next call.

        Raises:
            ProtocolError: the bytes are not RESP commands; ``offset`` is the position in the
                stream.
            EncodeError: a command changes the reply stream.
        """
        cdef Py_buffer view
        if self.fault is not None:
            raise self.fault
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            append(self.buffer, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        try:
            while self.step():
                pass
        except (EncodeError, ProtocolError) as error:
            self.fault = error
            if not self.buffer.commands:
                raise
        chunk = self.take()
        if self.only_look:
            self.forget()
        return chunk

    cdef object take(self):
        cdef Buffer b = self.buffer
        cdef Chunk chunk = None
        cdef Py_ssize_t size = own_size(&b.out)
        if b.commands:
            rollback(b, b.commands)
            rest = b.out.base[self.start:size]
            chunk = b.take()
            append(b, rest, len(rest))
            self.packed = 0
        elif self.start:
            memmove(b.out.base, b.out.base + self.start, size - self.start)
            b.out.p = b.out.base + size - self.start
        self.at -= self.start
        self.taken += self.start
        self.start = 0
        return chunk

    cdef int forget(self) except -1:
        """Drop the parsed part of a large command, except for the beginning."""
        cdef Buffer b = self.buffer
        cdef Py_ssize_t n, end = self.start + LOOKED_AT
        if own_size(&b.out) <= end:
            return 0
        if self.payload > 0:
            n = min(self.payload, own_size(&b.out) - self.at)
            self.at += n
            self.payload -= n
        n = self.at - end
        if n > 0:
            memmove(b.out.base + end, b.out.base + self.at, own_size(&b.out) - self.at)
            b.out.p -= n
            self.at = end
            self.taken += n
        return 0

    cdef bint step(self) except -1:
        """Parse one more header or payload; return False if more bytes are needed."""
        cdef Buffer b = self.buffer
        cdef Py_ssize_t end
        if b.first_command + b.commands >= self.limit:
            b.out.p = b.out.base + self.at
            return False
        if self.payload >= 0:
            if own_size(&b.out) - self.at < self.payload + 2:
                return False
            end = self.at + self.payload
            if not is_crlf(b.out.base + end):
                raise self.error("an argument is longer than its header says", end)
            self.at = end + 2
            self.payload = -1
            self.arguments -= 1
            if self.arguments == 0:
                self.end()
            return True
        cdef long long number = self.header(c'$' if self.arguments else c'*')
        if number < 0:
            return number == NO_HEADER
        if self.arguments:
            if number > LONGEST_NAME:
                self.check_name(number)
            self.payload = number
            if number > self.largest:
                self.record_size(number)
        elif number == 0:
            self.at = self.start        # stay at the fault, even if more data is fed
            raise self.error("an empty array is not a command and gets no reply")
        else:
            self.begun = self.taken + self.start
            self.arguments = number
        return True

    cdef long long header(self, char kind) except -2:
        """Read a header, '*n' or '$n', and return n.

        Return NOT_WHOLE if the header is incomplete, NO_HEADER for an empty line between commands.
        """
        cdef Buffer b = self.buffer
        cdef const char *p = b.out.base + self.at
        cdef const char *end = b.out.p
        cdef const char *after
        cdef long long number = 0
        if p == end:
            return NOT_WHOLE
        if p[0] != kind:
            return self.no_header(kind, p, end)
        after = length_end(p + 1, end, &number)
        # Servers accept neither nulls nor leading zeros.
        if after is not NULL and number >= 0 and (p[1] != c'0' or after == p + 4):
            self.at += after - p
            return number
        return self.no_number(p, p + min(end - p, HEADER_BYTES))

    cdef int no_header(self, char kind, const char *p, const char *end) except -2:
        """Skip an empty line between commands; refuse anything else."""
        cdef const char *line = p + (p[0] == c'\r')
        if kind == c'*':
            if line == end:
                return NOT_WHOLE
            if line[0] == c'\n':
                self.at += line + 1 - p
                self.start = self.at
                return NO_HEADER
        raise self.error(f"expected '{chr(kind)}' and found {<bytes>p[:min(end - p, 12)]!r}")

    cdef int no_number(self, const char *p, const char *end) except -2:
        """Refuse a header without a valid number, once the header is complete or too long."""
        cdef const char *stop
        if memchr(p, c'\n', end - p) is not NULL:
            stop = digits_end(p + 1, end)
            if stop[0] == c'\n' and p[1] != c'\n':
                raise self.error(
                    f"the line {<bytes>p[:stop - p]!r} ends in LF, and RESP in CRLF: convert the "
                    "file with unix2dos"
                )
            raise self.error(f"this header has an invalid number: {<bytes>p[:stop - p + 1]!r}")
        if end - p == HEADER_BYTES:
            raise self.error("this header does not end")
        return NOT_WHOLE

    cdef int check_name(self, long long number) except -1:
        """Refuse the next argument, of ``number`` bytes, if it is the command's name."""
        cdef long long n
        cdef const char *header = known_length_end(self.buffer.out.base + self.start + 1, &n)
        if known_length_end(header + 1, &n) == self.buffer.out.base + self.at:
            self.at = self.start
            raise self.error(f"a command name of {number:,} bytes is too long")
        return 0

    cdef int record_size(self, long long number) except -1:
        """Record ``number`` as the size of the largest argument; refuse an excessive size."""
        cdef Buffer b = self.buffer
        if number > b.out.most:
            try:
                refuse(b, number)
            except EncodeError as error:
                raise self.refusal(error) from None
        self.largest = number
        self.largest_command = b.first_command + b.commands
        return 0

    cdef int count(self) except -1:
        """Count the current command under its name, usually the same as the previous command's."""
        cdef long long size
        cdef const char *p = known_length_end(self.buffer.out.base + self.start + 1, &size)
        p = known_length_end(p + 1, &size)
        if size != len(self.name) or memcmp(p, <const char *>self.name, size):
            self.settle()
            self.name = p[:size]
        self.same += 1
        return 0

    cdef int settle(self) except -1:
        cdef bytes name = self.name[:NAME_BYTES].upper()
        if self.same:
            if len(self.counts) >= NAMES and name not in self.counts:
                name = b"(other)"
            self.counts[name] = self.counts.get(name, 0) + self.same
        self.same = 0
        return 0

    cdef int end(self) except -1:
        cdef Buffer b = self.buffer
        try:
            check_command(b.out.base + self.start, b.out.base + self.at)
        except EncodeError as error:
            raise self.refusal(error) from None
        if self.counts is not None:
            self.count()
        if self.packed < self.start:
            memmove(b.out.base + self.packed, b.out.base + self.start, self.at - self.start)
        self.packed += self.at - self.start
        # Mark the end of the whole commands, not the end of the buffer's content.
        cdef Py_ssize_t size = own_size(&b.out)
        b.out.p = b.out.base + self.packed
        end_command(b, b.first_command + b.commands)
        b.out.p = b.out.base + size
        self.start = self.at
        self.last, self.whole = self.begun, self.taken + self.at
        return 0

    cdef object refusal(self, object error):
        cdef Py_ssize_t command = self.buffer.first_command + self.buffer.commands
        return EncodeError(f"command {command:,}: {error}", command=command, row=command)

    cdef object error(self, str message, at=None):
        at = self.at if at is None else at
        return ProtocolError(f"not RESP commands: {message}", self.taken + at)


def arguments(command, most=None):
    """Return the arguments of a whole command, or the first ``most``, as a tuple of bytes."""
    _, found = beginning(command, PY_SSIZE_T_MAX if most is None else most, PY_SSIZE_T_MAX)
    return tuple([text for text, _ in found])


def beginning(command, Py_ssize_t most, Py_ssize_t max_bytes):
    """Read the first arguments of a command that may be incomplete.

    Args:
        most: the maximum number of arguments to return.
        max_bytes: the maximum number of bytes to return of each argument.

    Returns:
        A tuple of two: the command's number of arguments, and a list of the first arguments, each
        as a tuple of its first ``max_bytes`` bytes and its size.
    """
    cdef bytes data = bytes(command)
    cdef const char *p = data
    cdef const char *end = p + len(data)
    cdef long long count, size
    cdef list found = []
    p = length_end(p + 1, end, &count)
    if p is NULL:
        raise ValueError(f"this is not a RESP command: {data[:HEADER_BYTES]!r}")
    while p < end and len(found) < most:
        p = length_end(p + 1, end, &size)
        if p is NULL or size < 0:
            break
        found.append((p[:min(size, max_bytes, end - p)], size))
        p += min(size + 2, end - p)
    return count, found
