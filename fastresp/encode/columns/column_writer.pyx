# cython: language_level=3, cdivision=True
"""Encode Arrow columns as chunks of RESP with a template, without Python objects for values."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF

from ...resp.buffer cimport Buffer, full_size, rollback
from ...resp.values cimport Nulls, locate, nulls_policy, of_pairs, of_values
from ...resp.numbers_and_times cimport other_length
from ..plan cimport n_deletes
from ..writer cimport ChunkWriter
from .arrow cimport ArrowStream, Batch
from .column_view cimport (
    ARGUMENT_TOO_LARGE, BAD_INDEX, DAMAGED, IS_NOT_ALLOWED, IS_NULL_ROW, NOT_A_TIME, NOT_FINITE,
    NOT_ONE_ARGUMENT, NOT_UTF8, NO_MEMORY, NULL_INSIDE, NULL_KEY, OTHER_LENGTH, OUT_OF_RANGE,
    SAME_KEY, TOO_LARGE, ColumnView, name_of,
)
from .rows cimport WriteState, put_rows
from .steps cimport Steps
from .text cimport find_invalid_field

from time import monotonic

from ...outcome.errors import EncodeError, TemplateError
from ...outcome.messages import WITHOUT_NULLS, Hint, Message
from ...resp.split import arguments
from ..fields import NOT_A_TIME as NO_TIME
from ..row_key import key_probe
from ..writer import CHUNK_BYTES

# If a batch took longer than this, send the finished commands before reading the next batch.
cdef double SLOW_SECONDS = 0.0005
# The number of rows that are checked for damage in one step, before they are written.
cdef enum:
    CHECKED_ROWS = 128
cdef str DAMAGE = "the data is damaged; recreate the columns, or the file that they were read from"


cdef class ColumnWriter(ChunkWriter):
    """Encode Arrow columns through a plan, into chunks of whole commands.

    Use a ColumnWriter like a Writer, with an ArrowStream as the source.

    Args:
        plan: a Plan (such as a Template) to run for each row.
        stream: the source of the columns.
        nulls, chunk_bytes: as for a Writer.
        of_files: whether the columns are read from files; if so, an error about a null advises the
            user to filter the rows with ``sql``.

    Raises:
        TemplateError: a column is missing, or its type does not fit the placeholder.
    """

    cdef object plan
    cdef ArrowStream stream             # for error messages
    cdef Steps steps                    # bound to the columns of the current batches
    cdef Nulls nulls
    cdef bint of_files
    cdef Batch batch
    cdef bint slow                      # whether the last batch was slow to arrive
    cdef Py_ssize_t at                  # number of rows of the batch that are written
    cdef Py_ssize_t checked              # number of rows of the batch that are checked for damage
    cdef Py_ssize_t before              # number of rows of all earlier batches

    def __init__(
        self, plan, ArrowStream stream, *, nulls="auto", chunk_bytes=CHUNK_BYTES, of_files=False
    ):
        self.of_files = of_files
        self.nulls = nulls_policy(nulls)
        self.plan = plan
        self.stream = stream
        self.steps = Steps(plan, stream.schema, self.nulls)
        self.row_commands = len(plan.commands) - n_deletes(plan)

    @property
    def rows(self):
        """The number of rows read from the source."""
        return self.before + self.at

    @property
    def names(self):
        """The names of the columns, without an unnamed pandas index."""
        cdef Steps steps = self.steps
        cdef Py_ssize_t i
        return [steps.names[i] for i in range(steps.n_columns) if not steps.columns[i].hidden]

    def start_at(self, row, first_row=0):
        """Set the index of the first row to encode.

        Args:
            row: the index of the row in the source.
            first_row: the index, in the source, of the stream's first row.
        """
        self.start_row, self.before = row, first_row

    def fill(self, source):
        """Encode rows until a chunk is full; return False at the end of the stream.

        A chunk also ends after a batch that took more than SLOW_SECONDS to arrive.
        """
        cdef ArrowStream stream = source
        self.begin()
        try:
            while True:
                if self.batch is None:
                    if self.slow:
                        self.slow = False
                        return True
                    if not self.fetch(stream):
                        return False
                self.write()
                if full_size(&self.buffer.out) >= self.chunk_bytes:
                    return True
                PyErr_CheckSignals()
        finally:
            self.busy = False

    cdef bint fetch(self, ArrowStream stream) except -1:
        """Read the next batch; return False if there is no next batch."""
        cdef double start = monotonic()
        cdef Batch batch
        self.before += self.at
        self.at = self.checked = 0
        while True:
            batch = stream.next()
            if batch is None:
                if not self.rebind(stream):
                    return False
                continue
            if self.before + batch.array.length > self.start_row:
                break
            self.before += batch.array.length
            PyErr_CheckSignals()
        self.slow = monotonic() - start > SLOW_SECONDS
        self.steps.attach(batch, self.buffer.out.most)
        self.at = self.checked = max(self.start_row - self.before, 0)
        self.batch = batch
        return True

    cdef bint rebind(self, ArrowStream stream) except -1:
        """Bind the plan to the columns of the next stream; return False if there is none."""
        if not stream.open_next():
            return False
        try:
            self.steps = Steps(self.plan, stream.schema, self.nulls)
        except BaseException as error:
            if isinstance(error, TemplateError):
                locate(error, "", None, self.before, -1, None)
            stream.release_columns()    # the steps belong to the previous columns
            raise
        return True

    cdef int write(self) except -1:
        """Write rows of the batch until a chunk is full or the batch ends."""
        cdef WriteState state
        cdef Buffer b = self.buffer
        cdef Steps steps = self.steps
        cdef Py_ssize_t first = self.at, last = steps.root.length, end
        cdef int fault
        state.out, state.commands, state.left_out = &b.out, b.commands, b.nulls_left_out
        state.deletes = b.deletes
        state.nulls, state.pair_nulls = of_values(self.nulls), of_pairs(self.nulls)
        state.argument = -1
        state.column = NULL
        state.name = NULL
        state.error = NULL
        if b.room - b.commands < steps.n_commands:
            b.grow_marks()
        last = min(last, first + (b.room - b.commands) // steps.n_commands)
        state.ends, state.rows = b.ends.data.as_longlongs, b.rows.data.as_longlongs
        with nogil:
            while True:
                end = min(self.at + CHECKED_ROWS, last)
                if self.checked < end:
                    steps.check_rows(self.checked, end)
                    self.checked = end
                    last = min(last, steps.root.length)
                    end = min(end, last)
                fault = put_rows(&state, steps, self.before, &self.at, end, self.chunk_bytes)
                if fault or self.at < end or end == last:
                    break
        b.commands, b.nulls_left_out, b.deletes = state.commands, state.left_out, state.deletes
        b.own(self.batch)
        if not fault and self.at == steps.root.length < self.batch.array.length:
            fault, state.column = DAMAGED, steps.damaged()
        if fault:
            error = self.failure(&state, fault)
            rollback(b, state.whole)
            # Release the batch now, not when the traceback is dropped.
            self.batch = None
            raise error
        if self.at == self.batch.array.length:
            self.batch = None
        return 0

    cdef object failure(self, WriteState *state, int fault):
        """Return the error for the row that could not be written."""
        cdef Buffer b = self.buffer
        cdef Py_ssize_t command = b.first_command + b.commands
        if fault == NO_MEMORY:
            return MemoryError("no memory for the text of a row")
        cdef ColumnView *column
        name = None
        if state.name is not NULL:
            name = state.name[:state.name_size].decode(errors="backslashreplace")
        elif state.column is not NULL:
            column = state.column
            if column.target is &self.steps.root and self.steps.named:
                column = find_invalid_field(column, self.at)  # for {*!json}
            while column.name is NULL:
                column = column.target
            name = name_of(column)
        if state.error is NULL:
            error = EncodeError(describe_fault(fault, state, name or "", b.out.most, self.of_files))
        else:
            error = <object>state.error
            Py_DECREF(error)
        where = f"row {self.rows:,}, command {command:,}"
        if name:
            where += f", column {name!r}"
        located = locate(error, where, command, self.rows, state.argument, None)
        if isinstance(located, EncodeError):
            located.set_row_key(self.row_key())
        return located

    cdef str row_key(self):
        """Return the placeholder in the row's key, with its value; empty if unknown."""
        cdef ColumnWriter one
        probe = key_probe(self.plan)
        if probe is None:
            return ""
        try:
            one = ColumnWriter(probe[0], self.stream, nulls="error", chunk_bytes=1)
            one.steps.attach(self.batch, one.buffer.out.most)
            one.batch = self.batch
            one.at = one.checked = self.at
            one.write()
            return probe[1].shown(arguments(b"".join(one.take().pieces()))[1])
        except Exception:   # an error here must not hide the original error
            return ""


cdef str without_nulls(str name):
    """Return a query that leaves out the rows with a null in a column."""
    column = '"' + name.replace('"', '""') + '"'
    if not name or "." in name:                    # it may be a path within a column
        column = "..."
    return f"FROM source WHERE {column} IS NOT NULL"


# What is wrong with a value, by Fault, if this does not depend on the value.
cdef dict PROBLEMS = {
    IS_NULL_ROW: "the row itself is null, and has no columns",
    OUT_OF_RANGE:
        "this date or time is not within the years 1 to 9999, so ISO 8601 has no text for it",
    BAD_INDEX: f"this value points outside its dictionary: {DAMAGE}",
    DAMAGED: f"this value, or one inside it, is outside its column's memory: {DAMAGE}",
    NULL_INSIDE: "a vector can't contain nulls",
    TOO_LARGE: "a number in this vector is too large for the vector's float type",
    NOT_FINITE: "NaN and infinity have no JSON form; replace them with null or a number",
    NOT_A_TIME: f"cannot send this value: {NO_TIME}",
    NOT_UTF8: "this text is not UTF-8, which JSON requires; convert it, or send it separately",
    SAME_KEY: "a map has a duplicate key, which a JSON object can't have",
    NULL_KEY: "the field of a field-value pair is null",
}


cdef object describe_fault(int fault, WriteState *state, str name, Py_ssize_t most, bint of_files):
    """Return a sentence about the Fault of a value in the column ``name``.

    Args:
        most: the maximum size of an argument in bytes.
        of_files: as for ColumnWriter.
    """
    if fault == IS_NOT_ALLOWED:
        message = Message("cannot send a null: Redis has no null; ", WITHOUT_NULLS)
        if not of_files:
            return Message(message, ", or drop such rows")
        hint = Hint("sql", without_nulls(name))
        return Message(message, ", ", hint, " filters the rows of files")
    if fault == OTHER_LENGTH:
        return other_length(state.column.vector)
    if fault == NOT_ONE_ARGUMENT:
        return (
            "this value is a JSON object or list, which is not one argument: write "
            f"{{{name}!json}} for JSON, or in field-value pairs {{**!json}}, or {{**-{name}}} to "
            "leave it out"
        )
    if fault == ARGUMENT_TOO_LARGE:
        return (
            f"an argument is more than the {most:,} bytes that the server accepts; split it, or "
            "raise the server's proto-max-bulk-len"
        )
    return PROBLEMS[fault]
