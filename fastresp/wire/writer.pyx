# cython: language_level=3, cdivision=True
"""A stream of commands or rows as chunks of RESP, with every command's place kept."""

from .buffer cimport Buffer, end_command, rollback
from .encode cimport Nulls, locate, nulls_policy, put_arguments
from .plan cimport Plan

from io import BytesIO
from time import monotonic

CHUNK_BYTES = 1 << 20

# A source that trickles is sent on after this time even if the chunk is not full.
cdef double CHUNK_SECONDS = 0.25
# How many rows pass between two looks at the clock, which costs as much as a row.
cdef Py_ssize_t CLOCK_ROWS = 64
# Room beyond the chunk size, so that the row that crosses it rarely makes the buffer grow.
cdef Py_ssize_t SLACK_BYTES = 64 * 1024


cdef class Writer:
    """Encode commands, or rows through a plan, into chunks of whole commands.

    A row is written whole or not at all: an error takes back what it had written of its row.

    Args:
        plan: a Plan (such as a Template) to run for each row; None when each row is itself a
            command, a list or tuple of arguments.
        nulls: what a None does: ``"error"``, ``"skip"`` (the command, pair or item is left out)
            or ``"empty"`` (an empty string is sent).
        default: a function that turns an object of another type into str, bytes, int or float.
        chunk_bytes: a chunk ends with the row that reaches this size.
    """

    cdef Buffer buffer
    cdef Plan plan
    cdef Nulls nulls
    cdef object default
    cdef Py_ssize_t chunk_bytes
    cdef readonly Py_ssize_t rows       # rows taken from the source

    def __init__(self, plan=None, *, nulls="error", default=None, chunk_bytes=CHUNK_BYTES):
        self.buffer = Buffer(chunk_bytes + SLACK_BYTES)
        # A copy: a plan keeps what it learnt of the last row, and another Writer's rows differ.
        self.plan = None if plan is None else Plan(plan.text, plan.commands)
        self.nulls = nulls_policy(nulls)
        self.default = default
        self.chunk_bytes = chunk_bytes

    @property
    def commands(self):
        """Whole commands written so far."""
        return self.buffer.first_command + self.buffer.commands

    def chunks(self, rows):
        """Encode an iterable of rows; yield each Chunk as it becomes full.

        After an error ``take()`` gives the whole commands that came before it.

        Raises:
            EncodeError: a row can't be encoded.
            TemplateError: a row lacks a field.
        """
        source = iter(rows)
        more = True
        while more:
            more = self.fill(source)
            chunk = self.take()
            if chunk is not None:
                yield chunk

    def take(self):
        """Cut off the whole commands written since the last chunk, or None if there are none."""
        return self.buffer.take() if self.buffer.commands else None

    def fill(self, source):
        """Encode rows from an iterator until a chunk is due; False when it has no more."""
        cdef Buffer b = self.buffer
        cdef Py_ssize_t commands = b.commands, until = self.rows + CLOCK_ROWS
        cdef bint encoding = False
        cdef double deadline = monotonic() + CHUNK_SECONDS
        try:
            for row in source:
                encoding = True
                if self.plan is None:
                    if put_arguments(b, row, self.nulls, self.default):
                        end_command(b, self.rows)
                    else:
                        rollback(b, commands)
                else:
                    self.plan.put_row(b, row, self.rows, self.nulls, self.default)
                encoding = False
                commands = b.commands
                self.rows += 1
                if b.size >= self.chunk_bytes:
                    return True
                if self.rows >= until:
                    if monotonic() >= deadline:
                        return True
                    until += CLOCK_ROWS
            return False
        except Exception as error:
            if not encoding:
                raise
            located = self.located(error)
            raise located from located.__cause__
        finally:
            rollback(b, commands)

    cdef object located(self, Exception error):
        cdef Buffer b = self.buffer
        cdef Py_ssize_t command = b.first_command + b.commands
        cdef str where = f"command {command:,}"
        if self.plan is not None:
            field = None if b.argument == -1 else self.plan.field()
            where = f"row {self.rows:,}, {where}" + (f", field {field}" if field else "")
        return locate(error, where, command, self.rows, b.argument)


def pack_many(commands, *, default=None):
    """Encode commands, each a list or tuple of arguments, one after another.

    Args and errors are those of ``pack``; an error also gives the command's index.
    """
    out = BytesIO()
    for chunk in Writer(default=default).chunks(commands):
        out.write(chunk)
    return out.getvalue()
