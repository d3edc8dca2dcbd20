# cython: language_level=3, cdivision=True
"""Export columns of strings, bytes and times to other libraries through Arrow's PyCapsule protocol.

Releasing an exported array does not need Python, so a library may release it in any thread, even
after Python has exited.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EIO
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset, strdup

from .arrow cimport ArrowArrayStream, ArrowSchema

from datetime import datetime, timedelta, timezone

cdef extern from *:
    """
    #define fastresp_more(count) __atomic_add_fetch(&(count), 1, __ATOMIC_RELAXED)
    #define fastresp_less(count) __atomic_sub_fetch(&(count), 1, __ATOMIC_ACQ_REL)
    static long long fastresp_held_memory = 0;
    """
    int more "fastresp_more"(int count) noexcept nogil
    int less "fastresp_less"(int count) noexcept nogil
    long long more_memory "fastresp_more"(long long count) noexcept nogil
    long long less_memory "fastresp_less"(long long count) noexcept nogil
    long long held_memory "fastresp_held_memory"

cdef extern from "Python.h":
    int Py_IsInitialized() noexcept nogil

cdef int64_t NULLABLE = 2               # ARROW_FLAG_NULLABLE
# The buffers of a struct: no validity bitmap, since no row is null.
cdef const void *NO_VALIDITY[1]
NO_VALIDITY[0] = NULL
# Only StringColumn.of() and time_column() pass this object, so every column has memory.
cdef object MAKER = object()

# Kinds of columns: bytes, text (``True``), both with 64-bit offsets, and times. FORMATS has Arrow's
# name for each.
BYTES, TEXT, TIMES = 0, 1, 4
cdef const char *FORMATS[5]
FORMATS[:] = [b"z", b"u", b"Z", b"U", b"tsm:UTC"]
cdef object EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def live_columns():
    """Return the number of columns whose memory is not freed yet; for tests."""
    return held_memory


cdef class Column:
    """An Arrow array, whose values may be null.

    ``len()`` is the number of values, ``nbytes`` their size in bytes. Iterating yields Python
    objects, and None for a null.
    """

    def __cinit__(self, maker=None):
        if maker is not MAKER:
            raise TypeError(
                f"can't create a {type(self).__name__}; fetch_hashes() and pop_arrow() return it"
            )

    def __dealloc__(self):
        if self.values is not NULL:
            drop(self.values)

    def __len__(self):
        return self.values.length

    def __repr__(self):
        nulls = f", {self.null_count:,} null" if self.null_count else ""
        kind = "times" if self.values.times else "text" if self.values.text else "bytes"
        return f"<fastresp.{type(self).__name__} of {len(self):,} values ({kind}{nulls})>"

    cdef bint is_null(self, int64_t i) noexcept:
        cdef const unsigned char *valid = <const unsigned char *>self.values.buffers[0]
        return valid is not NULL and not valid[i >> 3] >> (i & 7) & 1

    @property
    def null_count(self):
        return self.values.nulls

    @property
    def large(self):
        """Whether the type is large_utf8 or large_binary, for values of 2 GiB or more in total."""
        return self.values.wide

    @property
    def nbytes(self):
        """The size of the values, in bytes."""
        return self.values.size

    def __arrow_c_schema__(self):
        capsule = new_capsule(b"arrow_schema", sizeof(ArrowSchema), free_schema)
        describe(schema_in(capsule), b"", kind_of(self.values))
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        capsule = new_capsule(b"arrow_array", sizeof(ArrowArray), free_array)
        share(self.values, array_in(capsule))
        return self.__arrow_c_schema__(), capsule


cdef class StringColumn(Column):
    """An Arrow array of strings or bytes, some of which may be null.

    ``len()`` is the number of values, ``nbytes`` their size in bytes. Iterating yields str or
    bytes, and None for a null.
    """

    @staticmethod
    cdef StringColumn of(Values *values):
        """Return a column that holds the memory, which has no holder yet."""
        cdef StringColumn column = StringColumn.__new__(StringColumn, MAKER)
        hold(column, values)
        return column

    def to_bytes(self):
        """Return the values as a list of bytes objects, with None for a null."""
        cdef Values *values = self.values
        cdef const char *data = <const char *>values.buffers[2]
        cdef int64_t i, start, end
        cdef list made = []
        for i in range(values.length):
            if values.wide:
                start = (<int64_t *>values.buffers[1])[i]
                end = (<int64_t *>values.buffers[1])[i + 1]
            else:
                start = (<int *>values.buffers[1])[i]
                end = (<int *>values.buffers[1])[i + 1]
            made.append(None if self.is_null(i) else data[start:end])
        return made

    def __iter__(self):
        # Used by pandas.Series(column).
        values = self.to_bytes()
        if self.values.text:
            values = [None if value is None else value.decode() for value in values]
        return iter(values)

    @property
    def text(self):
        """Whether the column's type is text (utf8), not bytes (binary)."""
        return self.values.text


cdef class TimeColumn(Column):
    """An Arrow array of times in UTC with milliseconds, some of which may be null.

    Iterating yields datetime objects, and None for a null.
    """

    def __iter__(self):
        cdef const int64_t *times = <const int64_t *>self.values.buffers[1]
        cdef int64_t i
        for i in range(self.values.length):
            try:
                yield None if self.is_null(i) else EPOCH + timedelta(milliseconds=times[i])
            except OverflowError:
                raise OverflowError(
                    f"a key expires {times[i]:,} ms after 1970, beyond the year 9999, the last one "
                    "of datetime; read the rows as Arrow columns"
                ) from None


def time_column(list milliseconds):
    """Return a TimeColumn of times since 1970 in milliseconds, with None for a null."""
    cdef Py_ssize_t i, n = len(milliseconds)
    cdef Values *values = <Values *>calloc(1, sizeof(Values))
    cdef TimeColumn column
    cdef unsigned char *valid
    cdef int64_t *times
    if values is NULL:
        raise MemoryError("no memory for a column")
    column = TimeColumn.__new__(TimeColumn, MAKER)
    hold(column, values)
    valid = <unsigned char *>calloc((n >> 3) + 1, 1)
    values.buffers[0] = valid
    times = <int64_t *>calloc(n + 1, sizeof(int64_t))
    values.buffers[1] = times
    if valid is NULL or times is NULL:
        raise MemoryError("no memory for a column")
    values.length, values.size, values.times = n, n * sizeof(int64_t), True
    for i in range(n):
        if milliseconds[i] is None:
            values.nulls += 1
        else:
            times[i] = milliseconds[i]
            valid[i >> 3] |= <unsigned char>(1 << (i & 7))
    return column


cdef void hold(Column column, Values *values) noexcept:
    """Make a column hold memory that has no holder yet."""
    values.holders = 1
    more_memory(held_memory)
    column.values = values


cdef int kind_of(Values *values) noexcept:
    return 4 if values.times else values.text + 2 * values.wide


cdef class StringBatch:
    """A batch of rows: named columns as an Arrow struct array.

    Args:
        names: the names of the columns, each a str.
        columns: Columns of the same length.
    """

    def __init__(self, names, columns):
        cdef Column column
        self.names, self.columns = tuple(names), tuple(columns)
        lengths = {len(column) for column in self.columns}
        if len(self.names) != len(self.columns) or len(lengths) != 1:
            raise ValueError("a batch needs one name per column, and columns of the same length")

    def __len__(self):
        return len(self.columns[0])

    @property
    def nbytes(self):
        """The size of the values, in bytes."""
        return sum(column.nbytes for column in self.columns)

    def __arrow_c_schema__(self):
        capsule = new_capsule(b"arrow_schema", sizeof(ArrowSchema), free_schema)
        cdef Column column
        kinds = [kind_of(column.values) for column in self.columns]
        describe_rows(schema_in(capsule), self.names, kinds)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        capsule = new_capsule(b"arrow_array", sizeof(ArrowArray), free_array)
        self.fill(array_in(capsule))
        return self.__arrow_c_schema__(), capsule

    cdef void fill(self, ArrowArray *out) except *:
        """Write the columns to ``out`` as a struct array, which the consumer must release."""
        cdef Py_ssize_t n = len(self.columns), i
        cdef Column column
        # One allocation: the pointers to the children, and then the children.
        cdef char *memory = <char *>calloc(n, sizeof(ArrowArray *) + sizeof(ArrowArray))
        if memory is NULL:
            raise MemoryError("no memory for a batch of columns")
        cdef ArrowArray **children = <ArrowArray **>memory
        cdef ArrowArray *each = <ArrowArray *>(memory + n * sizeof(ArrowArray *))
        for i in range(n):
            children[i] = each + i
            column = self.columns[i]
            share(column.values, children[i])
        memset(out, 0, sizeof(ArrowArray))
        out.length = len(self)
        out.n_buffers = 1
        out.buffers = NO_VALIDITY
        out.n_children = n
        out.children = children
        out.release = release_rows


cdef class Outflow:
    """The private data of an exported ArrowArrayStream."""

    cdef tuple names
    cdef tuple kinds
    cdef object batches
    cdef bytes message                  # of the last error

    cdef int next(self, ArrowArray *out) except -1:
        """Write the next batch to ``out``; after the last batch, write a released array."""
        cdef StringBatch batch = next(self.batches, None)
        if batch is None:
            memset(out, 0, sizeof(ArrowArray))
            return 0
        for name, column in zip(batch.names, batch.columns):
            if column.large:
                raise OverflowError(
                    f"a batch has 2 GiB of {name!r} or more, too much for the stream's type; use a "
                    "smaller batch_rows="
                )
        batch.fill(out)
        return 0


def stream(names, kinds, batches):
    """Return a capsule with an Arrow stream of an iterator's batches.

    The iterator's first exception ends the stream; the consumer receives the exception's text. When
    the stream is released, the iterator's ``close()`` is called, if this method exists.

    Args:
        names: names of the columns.
        kinds: for each column, TEXT, BYTES or TIMES.
        batches: an iterator of StringBatches with these columns.
    """
    cdef Outflow flow = Outflow.__new__(Outflow)
    flow.names, flow.kinds, flow.batches = tuple(names), tuple(kinds), batches
    cdef ArrowArrayStream *out = <ArrowArrayStream *>malloc(sizeof(ArrowArrayStream))
    if out is NULL:
        raise MemoryError("no memory for a stream of columns")
    out.get_schema = stream_schema
    out.get_next = stream_next
    out.get_last_error = stream_error
    out.release = release_stream
    out.private_data = <void *>flow
    Py_INCREF(flow)
    return PyCapsule_New(out, b"arrow_array_stream", free_stream)


def schema(names, kinds):
    """Return a capsule with the schema of columns; arguments as for ``stream``."""
    capsule = new_capsule(b"arrow_schema", sizeof(ArrowSchema), free_schema)
    describe_rows(schema_in(capsule), names, kinds)
    return capsule


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    try:
        describe_rows(out, flow.names, flow.kinds)
    except BaseException as error:
        flow.message = described(error)
        return EIO
    return 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    try:
        flow.next(out)
    except BaseException as error:
        flow.message = described(error)
        return EIO
    return 0


cdef bytes described(error):
    return (str(error) or type(error).__name__).encode(errors="replace").replace(b"\0", b"?")


cdef const char *stream_error(ArrowArrayStream *stream) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    if flow.message is None:
        return NULL
    return flow.message


cdef void release_stream(ArrowArrayStream *stream) noexcept nogil:
    # After Python has finalized, nothing needs closing.
    if Py_IsInitialized():
        end_stream(stream)
    stream.release = NULL


cdef void end_stream(ArrowArrayStream *stream) noexcept with gil:
    cdef PyObject *kind
    cdef PyObject *error
    cdef PyObject *trace
    # Keep the exception that the consumer may be handling.
    PyErr_Fetch(&kind, &error, &trace)
    close_batches(<Outflow>stream.private_data)
    Py_DECREF(<object>stream.private_data)
    PyErr_Restore(kind, error, trace)


cdef void close_batches(Outflow flow) noexcept:
    try:
        if hasattr(flow.batches, "close"):
            flow.batches.close()
    except BaseException:
        pass  # no caller could handle it
    flow.batches = None


cdef void free_stream(capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(
        capsule, b"arrow_array_stream"
    )
    if stream.release is not NULL:
        stream.release(stream)
    free(stream)


cdef void share(Values *values, ArrowArray *out) noexcept nogil:
    """Write an array that shares a column's memory, and count the array as a holder."""
    more(values.holders)
    memset(out, 0, sizeof(ArrowArray))
    out.length = values.length
    out.null_count = values.nulls
    out.n_buffers = 2 if values.times else 3
    out.buffers = values.buffers
    out.release = release_column
    out.private_data = values


cdef void drop(Values *values) noexcept nogil:
    """Remove a holder; free the memory if it was the last one."""
    cdef int k
    if less(values.holders) == 0:
        for k in range(3):
            free(<void *>values.buffers[k])
        free(values)
        less_memory(held_memory)


cdef void release_column(ArrowArray *array) noexcept nogil:
    drop(<Values *>array.private_data)
    array.release = NULL


cdef void release_rows(ArrowArray *array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        # A consumer that moved a child out of the array releases the child itself.
        if array.children[i].release is not NULL:
            array.children[i].release(array.children[i])
    free(array.children)
    array.release = NULL


cdef int describe(ArrowSchema *out, bytes name, int kind) except -1:
    """Write the schema of one column."""
    if b"\0" in name:
        raise ValueError(f"Arrow allows no NUL in column names: {name!r}")
    memset(out, 0, sizeof(ArrowSchema))
    out.format = FORMATS[kind]
    out.name = strdup(name)
    if out.name is NULL:
        raise MemoryError("no memory for the name of a column")
    out.flags = NULLABLE
    out.release = release_schema
    return 0


cdef int describe_rows(ArrowSchema *out, names, kinds) except -1:
    """Write the schema of a batch; ``kinds`` has the kind of each column."""
    cdef Py_ssize_t n = len(names), i
    cdef char *memory = <char *>calloc(n, sizeof(ArrowSchema *) + sizeof(ArrowSchema))
    if memory is NULL:
        raise MemoryError("no memory for the names of columns")
    memset(out, 0, sizeof(ArrowSchema))
    out.format = b"+s"
    out.children = <ArrowSchema **>memory
    out.release = release_schema
    for i, (name, kind) in enumerate(zip(names, kinds)):
        out.children[i] = <ArrowSchema *>(memory + n * sizeof(ArrowSchema *)) + i
        try:
            describe(out.children[i], name.encode(), kind)
        except BaseException:
            out.release(out)
            raise
        out.n_children = i + 1
    return 0


cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release is not NULL:
            schema.children[i].release(schema.children[i])
    free(schema.children)
    free(<void *>schema.name)
    schema.release = NULL


cdef object new_capsule(const char *name, size_t size, PyCapsule_Destructor destructor):
    """Return a capsule with an empty struct to fill in."""
    cdef void *memory = calloc(1, size)
    if memory is NULL:
        raise MemoryError("no memory to export columns")
    return PyCapsule_New(memory, name, destructor)


cdef inline ArrowSchema *schema_in(capsule) except NULL:
    return <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")


cdef inline ArrowArray *array_in(capsule) except NULL:
    return <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")


cdef void free_schema(capsule) noexcept:
    cdef ArrowSchema *schema = schema_in(capsule)
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


cdef void free_array(capsule) noexcept:
    cdef ArrowArray *array = array_in(capsule)
    if array.release is not NULL:
        array.release(array)
    free(array)
