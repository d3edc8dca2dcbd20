# cython: language_level=3, cdivision=True
"""RESP from somewhere else, split at the end of each command and checked on the way."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memchr

from .buffer cimport Buffer, Chunk, end_command, put_raw, rollback
from .encode cimport check_command

from ..errors import EncodeError, ProtocolError

# A header is '*' or '$', up to 19 digits and CRLF.
cdef Py_ssize_t HEADER_BYTES = 22


cdef class CommandSplitter:
    """Collect RESP in pieces of any size; give it back as chunks of whole commands.

    What a server would take otherwise than as commands with one reply each is refused: inline
    commands, empty arrays, and commands that change the reply stream.
    """

    cdef Buffer buffer
    cdef Py_ssize_t at              # everything before this offset in the buffer is understood
    cdef Py_ssize_t start           # offset of the command that is being read
    cdef Py_ssize_t taken           # bytes given back in chunks so far
    cdef long long arguments        # how many arguments this command still misses; 0 before it
    cdef readonly object fault      # the error that ended this, or None
    cdef long long payload          # bytes of the argument at hand; -1 when its header is next

    def __cinit__(self):
        self.buffer = Buffer(1 << 16)
        self.payload = -1

    @property
    def pending(self):
        """Bytes held of a command that is not whole yet."""
        return self.buffer.size - self.start

    def feed(self, data):
        """Add bytes; return a Chunk of the commands that are whole now, or None.

        An error that comes after whole commands is kept in ``fault``, and raised by later calls.

        Raises:
            ProtocolError: the bytes are not RESP commands; ``offset`` says where in the stream.
            EncodeError: a command changes the reply stream.
        """
        cdef Py_buffer view
        if self.fault is not None:
            raise self.fault
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            put_raw(self.buffer, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        try:
            while self.step():
                pass
        except (EncodeError, ProtocolError) as error:
            self.fault = error
            if not self.buffer.commands:
                raise
        return self.take()

    cdef object take(self):
        cdef Buffer b = self.buffer
        cdef Chunk chunk
        if not b.commands:
            return None
        cdef Py_ssize_t size = b.size
        rollback(b, b.commands)
        cdef bytes rest = b.data[b.size:size]
        chunk = b.take()
        put_raw(b, rest, len(rest))
        self.at -= chunk.size
        self.start -= chunk.size
        self.taken += chunk.size
        return chunk

    cdef bint step(self) except -1:
        """Understand one more header or payload; False when there are not enough bytes."""
        cdef Buffer b = self.buffer
        cdef Py_ssize_t end
        if self.payload >= 0:
            if b.size - self.at < self.payload + 2:
                return False
            end = self.at + self.payload
            if b.data[end] != c'\r' or b.data[end + 1] != c'\n':
                raise self.error("an argument is longer than its header says", end)
            self.at = end + 2
            self.payload = -1
            self.arguments -= 1
            if self.arguments == 0:
                self.end()
            return True
        cdef long long number = self.header(c'$' if self.arguments else c'*')
        if number < 0:
            return False
        if self.arguments:
            self.payload = number
        elif number == 0:
            self.at = self.start        # to stay at the fault, whatever is fed next
            raise self.error("an empty command gets no reply")
        else:
            self.arguments = number
        return True

    cdef long long header(self, char kind) except -2:
        """Read '*n' or '$n'; -1 when it is not all there."""
        cdef Buffer b = self.buffer
        cdef const char *p = b.data + self.at
        cdef Py_ssize_t i, have = min(b.size - self.at, HEADER_BYTES)
        cdef long long number = 0
        if have == 0:
            return -1
        if p[0] != kind:
            raise self.error(f"expected '{chr(kind)}' and found {<bytes>p[:min(have, 12)]!r}")
        if memchr(p, c'\n', have) is NULL:
            if have == HEADER_BYTES:
                raise self.error("this header has no end")
            return -1
        for i in range(1, have):
            if p[i] == c'\r' and i > 1 and p[i + 1] == c'\n' and (p[1] != c'0' or i == 2):
                self.at += i + 2
                return number
            if not c'0' <= p[i] <= c'9' or i > 18:
                raise self.error(f"this header has no proper number: {<bytes>p[:i + 1]!r}")
            number = number * 10 + (p[i] - 48)
        return -1

    cdef int end(self) except -1:
        cdef Buffer b = self.buffer
        try:
            check_command(b.data + self.start, b.data + self.at)
        except EncodeError as error:
            command = b.first_command + b.commands
            raise EncodeError(f"command {command:,}: {error}", command=command) from None
        # The mark is the end of what is understood, not of what the buffer holds.
        cdef Py_ssize_t size = b.size
        b.size = self.at
        end_command(b, b.first_command + b.commands)
        b.size = size
        self.start = self.at
        return 0

    cdef object error(self, str message, at=None):
        at = self.at if at is None else at
        return ProtocolError(f"not RESP commands: {message}", self.taken + at)


def arguments(command):
    """Give back the arguments of one whole command of a chunk, as a tuple of bytes."""
    cdef bytes data = bytes(command)
    cdef Py_ssize_t start, size, at = data.index(b"\n") + 1
    cdef list found = []
    while at < len(data):
        start = data.index(b"\n", at) + 1
        size = int(data[at + 1:start - 2])
        found.append(data[start:start + size])
        at = start + size + 2
    return tuple(found)
