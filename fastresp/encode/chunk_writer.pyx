# cython: language_level=3, cdivision=True
"""The base class of all writers: collect commands in a buffer, and cut chunks from the buffer."""

cimport cython

from ..resp.buffer cimport PY_SSIZE_T_MAX, Buffer

CHUNK_BYTES = 1 << 19

# Room beyond the chunk size, so that the last row of a chunk rarely grows the buffer.
cdef Py_ssize_t SLACK_BYTES = 64 * 1024


cdef class ChunkWriter:
    """Turns a source into chunks of whole commands; subclasses encode the source.

    Args:
        chunk_bytes: a chunk ends with the row that reaches this size.

    Attributes:
        commands: the number of whole commands written so far.
        max_bulk_bytes: larger arguments are refused; None for no limit.
    """

    def __cinit__(self, *args, Py_ssize_t chunk_bytes=CHUNK_BYTES, **kwargs):
        self.chunk_bytes = chunk_bytes
        self.buffer = Buffer(chunk_bytes + SLACK_BYTES)
        self.buffer.out.large = chunk_bytes
        self.row_commands = 1

    @property
    def commands(self):
        """The number of whole commands written so far."""
        return self.buffer.first_command + self.buffer.commands

    @property
    def skipped(self):
        """The number of commands left out so far because of a null or for lack of data."""
        return (self.rows - self.start_row) * self.row_commands + self.deletes - self.commands

    @property
    def deletes(self):
        """The number of HDEL commands written so far because fields are null."""
        return self.buffer.deletes

    @property
    def nulls_skipped(self):
        """The number of field-value pairs and list items left out so far because of a null."""
        return self.buffer.nulls_left_out

    @property
    def max_bulk_bytes(self):
        """The maximum size of an argument in bytes; None for no limit."""
        return None if self.buffer.out.most == PY_SSIZE_T_MAX else self.buffer.out.most

    @max_bulk_bytes.setter
    def max_bulk_bytes(self, most):
        self.buffer.out.most = PY_SSIZE_T_MAX if most is None else most

    def chunks(self, source):
        """Encode a source; yield each Chunk as it becomes full.

        After an error, ``take()`` returns the whole commands written before the error.

        Raises:
            EncodeError: a row can't be encoded.
            TemplateError: a row lacks a field.
        """
        source = iter(source)
        more = True
        while more:
            more = self.fill(source)
            chunk = self.take()
            if chunk is not None:
                yield chunk

    def start_at(self, row):
        """Set the index of the first row to encode; earlier rows of the source are skipped."""
        self.start_row = row

    def fill(self, source):
        """Encode rows until a chunk is complete; return False at the end of the source."""
        raise NotImplementedError

    def take(self):
        """Return the whole commands written since the last chunk; None if there are no commands."""
        with cython.critical_section(self):
            self.check_free()
            return self.buffer.take() if self.buffer.commands else None

    cdef int begin(self) except -1:
        """Record that fill() is running; at its end, fill() must set ``busy`` to False."""
        with cython.critical_section(self):
            self.check_free()
            self.busy = True
        return 0

    cdef int check_free(self) except -1:
        """Raise RuntimeError if fill() is running.

        This call then comes from the source, default= or another thread.
        """
        if self.busy:
            raise RuntimeError(
                f"this {type(self).__name__} is encoding a row; its source, default= and other "
                "threads can't use it now"
            )
        return 0
