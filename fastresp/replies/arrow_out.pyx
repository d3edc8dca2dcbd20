# cython: language_level=3, cdivision=True
"""Export columns of strings and bytes to other libraries, through Arrow's PyCapsule protocol.

Releasing an exported array does not need Python, so a library may release it in any thread, even
after Python has exited.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EIO
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset, strdup

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
# Only StringColumn.of() passes this object, so every column has memory.
cdef object MAKER = object()


def live_columns():
    """Return the number of columns whose memory is not freed yet; for tests."""
    return held_memory


cdef class StringColumn:
    """An Arrow array of strings or bytes, some of which may be null.

    ``len()`` is the number of values, ``nbytes`` their size in bytes. Iterating yields str or
    bytes, and None for a null.
    """

    def __cinit__(self, maker=None):
        if maker is not MAKER:
            raise TypeError("can't create a StringColumn; fetch_hashes() and pop_arrow() return it")

    @staticmethod
    cdef StringColumn of(Values *values):
        """Return a column that is the first holder of the memory."""
        cdef StringColumn column = StringColumn.__new__(StringColumn, MAKER)
        values.holders = 1
        more_memory(held_memory)
        column.values = values
        return column

    def __dealloc__(self):
        if self.values is not NULL:
            drop(self.values)

    def __len__(self):
        return self.values.length

    def __repr__(self):
        kind = "text" if self.values.text else "bytes"
        nulls = f", {self.null_count:,} null" if self.null_count else ""
        return f"<fastresp.StringColumn of {len(self):,} values ({kind}{nulls})>"

    def to_bytes(self):
        """Return the values as a list of bytes objects, with None for a null."""
        cdef Values *values = self.values
        cdef const unsigned char *valid = <const unsigned char *>values.buffers[0]
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
            if valid is not NULL and not valid[i >> 3] >> (i & 7) & 1:
                made.append(None)
            else:
                made.append(data[start:end])
        return made

    def __iter__(self):
        # Used by pandas.Series(column).
        values = self.to_bytes()
        if self.values.text:
            values = [None if value is None else value.decode() for value in values]
        return iter(values)

    @property
    def null_count(self):
        return self.values.nulls

    @property
    def text(self):
        """Whether the column's type is text (utf8), not bytes (binary)."""
        return self.values.text

    @property
    def large(self):
        """Whether the type is large_utf8 or large_binary, for values of 2 GiB or more in total."""
        return self.values.wide

    @property
    def nbytes(self):
        """The size of the values, in bytes."""
        return self.values.size

    def __arrow_c_schema__(self):
        capsule = new_schema()
        describe(schema_in(capsule), b"", self.values.text, self.values.wide)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        capsule = new_array()
        share(self.values, array_in(capsule))
        return self.__arrow_c_schema__(), capsule


cdef class StringBatch:
    """A batch of rows: named columns as an Arrow struct array.

    Args:
        names: the names of the columns, each a str.
        columns: StringColumns of the same length.
    """

    def __init__(self, names, columns):
        cdef StringColumn column
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
        capsule = new_schema()
        cdef StringColumn column
        kinds = [(column.values.text, column.values.wide) for column in self.columns]
        describe_rows(schema_in(capsule), self.names, kinds)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        capsule = new_array()
        self.fill(array_in(capsule))
        return self.__arrow_c_schema__(), capsule

    cdef void fill(self, ArrowArray *out) except *:
        """Write the columns to ``out`` as a struct array, which the consumer must release."""
        cdef Py_ssize_t n = len(self.columns), i
        cdef StringColumn column
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


def stream(names, text, batches):
    """Return a capsule with an Arrow stream of an iterator's batches.

    The iterator's first exception ends the stream; the consumer receives the exception's text. When
    the stream is released, the iterator's ``close()`` is called, if this method exists.

    Args:
        names: names of the columns.
        text: for each column, whether it is UTF-8 text, not bytes.
        batches: an iterator of StringBatches with these columns.
    """
    cdef Outflow flow = Outflow.__new__(Outflow)
    flow.names, flow.text, flow.batches = tuple(names), tuple(text), batches
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


def schema(names, text):
    """Return a capsule with the schema of columns; arguments as for ``stream``."""
    capsule = new_schema()
    describe_rows(schema_in(capsule), names, [(each, False) for each in text])
    return capsule


cdef class Outflow:
    """The private data of an exported ArrowArrayStream."""

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


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    try:
        describe_rows(out, flow.names, [(each, False) for each in flow.text])
    except BaseException as error:
        flow.words = described(error)
        return EIO
    return 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    try:
        flow.next(out)
    except BaseException as error:
        flow.words = described(error)
        return EIO
    return 0


cdef bytes described(error):
    return (str(error) or type(error).__name__).encode(errors="replace").replace(b"\0", b"?")


cdef const char *stream_error(ArrowArrayStream *stream) noexcept with gil:
    cdef Outflow flow = <Outflow>stream.private_data
    if flow.words is None:
        return NULL
    return flow.words


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
    out.n_buffers = 3
    out.buffers = values.buffers
    out.release = release_column
    out.private_data = values


cdef void drop(Values *values) noexcept nogil:
    """Reduce the number of holders; free the memory if no holder is left."""
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


cdef int describe(ArrowSchema *out, bytes name, bint text, bint wide) except -1:
    """Write the schema of one column."""
    if b"\0" in name:
        raise ValueError(f"Arrow allows no NUL in column names: {name!r}")
    memset(out, 0, sizeof(ArrowSchema))
    if text:
        out.format = b"U" if wide else b"u"
    else:
        out.format = b"Z" if wide else b"z"
    out.name = strdup(name)
    if out.name is NULL:
        raise MemoryError("no memory for the name of a column")
    out.flags = NULLABLE
    out.release = release_schema
    return 0


cdef int describe_rows(ArrowSchema *out, names, kinds) except -1:
    """Write the schema of a batch; ``kinds`` has (text, wide) for each column."""
    cdef Py_ssize_t n = len(names), i
    cdef char *memory = <char *>calloc(n, sizeof(ArrowSchema *) + sizeof(ArrowSchema))
    if memory is NULL:
        raise MemoryError("no memory for the names of columns")
    memset(out, 0, sizeof(ArrowSchema))
    out.format = b"+s"
    out.children = <ArrowSchema **>memory
    out.release = release_schema
    for i, (name, (text, wide)) in enumerate(zip(names, kinds)):
        out.children[i] = <ArrowSchema *>(memory + n * sizeof(ArrowSchema *)) + i
        try:
            describe(out.children[i], name.encode(), text, wide)
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


cdef object new_schema():
    """Return a capsule with an empty schema to fill in."""
    cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError("no memory for the names of columns")
    return PyCapsule_New(schema, b"arrow_schema", free_schema)


cdef object new_array():
    """Return a capsule with an empty array to fill in."""
    cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
    if array is NULL:
        raise MemoryError("no memory for a batch of columns")
    return PyCapsule_New(array, b"arrow_array", free_array)


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
