# cython: language_level=3, cdivision=True
"""Encode rows or commands as chunks of RESP; the base class of all writers."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from ..resp.buffer cimport PY_SSIZE_T_MAX, Buffer, end_command, full_size, rollback
from ..resp.values cimport Nulls, locate, nulls_policy, of_pairs, of_values, put_arguments
from .plan cimport Plan, n_deletes

from io import BytesIO
from time import monotonic

from ..outcome.errors import EncodeError, RowLocation
from ..outcome.messages import iterator_of, without_nulls_option
from ..outcome.tracebacks import public
from ..resp.split import arguments
from .row_key import key_probe

CHUNK_BYTES = 1 << 19

# Room beyond the chunk size, so that the last row of a chunk rarely grows the buffer.
cdef Py_ssize_t SLACK_BYTES = 64 * 1024


cdef class ChunkWriter:
    """Turns a source into chunks of whole commands; subclasses encode the source.

    Args:
        chunk_bytes: a chunk ends with the row that reaches this size.
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
        """The number of commands left out so far because of nulls or empty lists."""
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
        """Raise RuntimeError if the source, default= or a thread uses this object during fill()."""
        if self.busy:
            raise RuntimeError(
                f"this {type(self).__name__} is encoding a row; its source, default= and other "
                "threads can't use it now"
            )
        return 0


# Even a chunk that is not full ends after this time: a slow source's rows are sent while the source
# makes the next rows, and an event loop is never blocked for longer.
CHUNK_SECONDS = 0.002
# Reading the clock costs as much as a row, so it is read once per this many rows.
cdef Py_ssize_t CLOCK_ROWS = 64


cdef class Writer(ChunkWriter):
    """Encode commands, or rows through a plan, into chunks of whole commands.

    A row is written whole or not at all: an error removes the partly written row.

    Args:
        plan: a Plan (such as a Template) to run for each row; None when each row is itself a
            command, a list or tuple of arguments.
        nulls: how to handle None: ``"auto"`` (leave out a field-value pair; an error elsewhere),
            ``"skip"`` (leave out the command, field-value pair or item), ``"empty"`` (send an empty
            string) or ``"error"``.
        default: as for ``pack``.
        chunk_bytes: a chunk ends with the row that reaches this size.
        chunk_seconds: a chunk also ends with the first row after this time.

    Attributes:
        rows: the number of rows read from the source.
        commands: the number of whole commands written so far.
        max_bulk_bytes: larger arguments are refused; None for no limit.
    """

    cdef Plan plan
    cdef Nulls nulls
    cdef object default
    cdef double chunk_seconds
    cdef readonly Py_ssize_t rows       # number of rows read from the source

    def __init__(
        self, plan=None, *, nulls="auto", default=None, chunk_bytes=CHUNK_BYTES,
        chunk_seconds=CHUNK_SECONDS,
    ):
        # Copy the plan: it remembers the type of the last row, which differs between Writers.
        self.plan = None if plan is None else Plan(plan.text, plan.commands)
        if self.plan is not None:
            self.row_commands = len(plan.commands) - n_deletes(plan)
            self.plan.pair_nulls = of_pairs(nulls_policy(nulls))
        self.nulls = of_values(nulls_policy(nulls))
        self.default = default
        self.chunk_seconds = chunk_seconds

    def start_at(self, row):
        """Set the index of the first row; the iterator must begin with this row."""
        self.start_row = self.rows = row

    def fill(self, source):
        """Encode rows until a chunk is full or time runs out; return False at the iterator's end.

        If time runs out after rows that were all left out, ``take()`` returns None.
        """
        cdef Buffer b = self.buffer
        cdef Py_ssize_t commands = b.commands, until = self.rows + 1, step = 1
        cdef bint encoding = False
        cdef double now, deadline, last = monotonic()
        self.begin()
        deadline = last + self.chunk_seconds
        try:
            for row in source:
                encoding = True
                # The row's items are borrowed: without a GIL, another thread could free them.
                with cython.critical_section(row):
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
                if full_size(&b.out) >= self.chunk_bytes:
                    return True
                if self.rows >= until:
                    # Handle Ctrl-C even if no Python code runs, as for skipped rows of a list.
                    PyErr_CheckSignals()
                    now = monotonic()
                    if now >= deadline:
                        return True
                    # Read the clock for every row if rows arrive slowly.
                    step = 1 if (now - last) * 4 > self.chunk_seconds else min(2 * step, CLOCK_ROWS)
                    last = now
                    until += step
            return False
        except Exception as error:
            if not encoding:
                raise
            located = self.located(error, row)
            raise located from located.__cause__
        finally:
            self.busy = False
            rollback(b, commands)

    cdef object located(self, Exception error, object row):
        cdef Buffer b = self.buffer
        cdef Py_ssize_t command = b.first_command + b.commands
        cdef str where = f"command {command:,}"
        words = row
        if self.plan is not None:
            words = [b"".join([
                part for part in self.plan.commands[self.plan.program][0] if isinstance(part, bytes)
            ])]
            field = None if b.argument == -1 else self.plan.field()
            where = f"row {self.rows:,}, {where}" + (f", field {field}" if field else "")
        located = locate(error, where, command, self.rows, b.argument, words)
        if self.plan is not None and isinstance(located, RowLocation):
            located.set_row_key(self.row_key(row))
        return located

    cdef str row_key(self, object row):
        """Return the placeholder in a row's key, with its value; empty if unknown."""
        probe = key_probe(self.plan)
        if probe is None:
            return ""
        try:
            chunk = next(Writer(probe[0], nulls="error").chunks([row]))
            return probe[1].shown(arguments(b"".join(chunk.pieces()))[1])
        except Exception:   # an error here must not hide the original error
            return ""


@public
def pack_many(commands, *, default=None):
    """Encode several commands as one bytes object.

    Args:
        commands: an iterable of commands, each a list or tuple of arguments, name first.
        default: as for ``pack``.

    Returns:
        The commands as RESP, in order.

    Raises:
        EncodeError: as for ``pack``; the message has the index of the command.
    """
    out = BytesIO()
    try:
        rows = iterator_of(commands, "commands", "commands")
        for chunk in Writer(default=default).chunks(rows):
            out.writelines(chunk.pieces())
    except EncodeError as error:
        error.args = (without_nulls_option(error.args[0]),)
        raise
    return out.getvalue()
