# cython: language_level=3, cdivision=True
"""What the writers have in common: commands collected in a buffer, cut off as chunks."""

cimport cython

from ..resp.buffer cimport PY_SSIZE_T_MAX, Buffer

CHUNK_BYTES = 1 << 19

# Room beyond the chunk size, so that the row that crosses it rarely makes the buffer grow.
cdef Py_ssize_t SLACK_BYTES = 64 * 1024


cdef class ChunkWriter:
    """Chunks of whole commands from a source, of which those who inherit know how to encode it.

    Args:
        chunk_bytes: a chunk ends with the row that reaches this size.

    Attributes:
        commands: whole commands written so far.
        max_bulk_bytes: arguments larger than this are refused; None for no limit.
    """

    def __cinit__(self, *args, Py_ssize_t chunk_bytes=CHUNK_BYTES, **kwargs):
        self.chunk_bytes = chunk_bytes
        self.buffer = Buffer(chunk_bytes + SLACK_BYTES)
        self.buffer.out.large = chunk_bytes
        self.row_commands = 1

    @property
    def commands(self):
        """Whole commands written so far."""
        return self.buffer.first_command + self.buffer.commands

    @property
    def skipped(self):
        """Commands left out of the rows so far, since a null stood in them."""
        return self.rows * self.row_commands - self.commands

    @property
    def max_bulk_bytes(self):
        """The largest argument that is accepted, or None for no limit."""
        return None if self.buffer.out.most == PY_SSIZE_T_MAX else self.buffer.out.most

    @max_bulk_bytes.setter
    def max_bulk_bytes(self, most):
        self.buffer.out.most = PY_SSIZE_T_MAX if most is None else most

    def chunks(self, source):
        """Encode a source; yield each Chunk as it becomes full.

        After an error ``take()`` gives the whole commands that came before it.

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

    def fill(self, source):
        """Encode rows of a source until a chunk is due; False when there are no more."""
        raise NotImplementedError

    def take(self):
        """Cut off the whole commands written since the last chunk, or None if there are none."""
        with cython.critical_section(self):
            self.check_free()
            return self.buffer.take() if self.buffer.commands else None

    cdef int begin(self) except -1:
        """Begin to fill; whoever does ends it by setting busy to False."""
        with cython.critical_section(self):
            self.check_free()
            self.busy = True
        return 0

    cdef int check_free(self) except -1:
        """Refuse to be used by the source, by default= or by another thread, in the midst of it."""
        if self.busy:
            raise RuntimeError(
                f"this {type(self).__name__} is in the midst of a row, and can't be used from there"
            )
        return 0
