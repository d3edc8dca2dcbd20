# cython: language_level=3, cdivision=True
"""Gather items into lists, each for one variadic command."""

from cpython.buffer cimport (
    PyBUF_FULL_RO,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_Check, PyBytes_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ..encode.columns.arrow cimport (
    ArrowArray,
    ArrowSchema,
    ArrowStream,
    Batch,
)
from ..resp.values cimport holds_bytes, is_date

from time import monotonic

from ..outcome.errors import SourceError

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    Py_ssize_t PyBytes_GET_SIZE(object)
    Py_ssize_t PyObject_LengthHint(object, Py_ssize_t) except -1

# Maximum items between two reads of the clock. A read costs as much as a few items.
cdef Py_ssize_t CLOCK_ITEMS = 64


def gather(source, list batch, Py_ssize_t max_items, Py_ssize_t max_bytes, double seconds):
    """Append items of an iterator to a list until a limit or the deadline is reached.

    Args:
        source: an iterator of items.
        batch: the list to append to; it need not be empty.
        max_items: stop after this many items.
        max_bytes: stop after the item that reaches this many bytes. The size of a str is its
            number of characters; of any other item, its ``len()``, or 32 if it has no length.
        seconds: stop after this many seconds, but only when the next item has been appended.

    Returns:
        False if the iterator is exhausted; True if it may have more items.
    """
    cdef Py_ssize_t count = 0, size = 0, until = 1, step = 1
    cdef double now, last = monotonic()
    cdef double deadline = last + seconds
    for item in source:
        count += 1
        if PyBytes_CheckExact(item):
            size += PyBytes_GET_SIZE(item)
        elif PyUnicode_CheckExact(item):
            size += PyUnicode_GET_LENGTH(item)
        else:
            item = unchanging(item)
            size += size_of(item)
        batch.append(item)
        if count >= max_items or size >= max_bytes:
            return True
        if count >= until:
            now = monotonic()
            if now >= deadline:
                return True
            # For a slow source, read the clock after each item.
            step = 1 if (now - last) * 4 > seconds else min(2 * step, CLOCK_ITEMS)
            last = now
            until = count + step
    return False


cpdef object unchanging(object item):
    """Copy a buffer of bytes, since the source may reuse it; return other objects unchanged."""
    cdef Py_buffer view
    if PyBytes_Check(item) or not PyObject_CheckBuffer(item):
        return item
    try:
        PyObject_GetBuffer(item, &view, PyBUF_FULL_RO)
    except Exception:   # refused when it is encoded, where the error names the item
        return item
    try:
        if not holds_bytes(&view) or is_date(item):
            return item
        return memoryview(item).tobytes()
    finally:
        PyBuffer_Release(&view)


cpdef Py_ssize_t size_of(object item) except -1:
    """Return the length of an item, or 32 if it has no length."""
    try:
        return PyObject_LengthHint(item, 32)
    except ValueError:  # a released memoryview
        return 32


# Memory of a list array, which the pointers in the array refer to.
cdef struct ListMemory:
    ArrowArray values
    ArrowArray *child
    const void *buffers[2]
    int64_t *offsets


cdef struct ListSchema:
    ArrowSchema values
    ArrowSchema *child


cdef class ListedStream(ArrowStream):
    """Reads Arrow data of one column as batches of lists of the column's values.

    Args:
        data: an array or a stream of arrays of one type, not of structs.
        most: maximum values per list.
        max_bytes: approximate maximum bytes of a list of strings or bytes.
        sizes: a list, to which the number of values of each list is appended.

    Raises:
        TypeError: data is a table.
    """

    cdef Py_ssize_t most
    cdef Py_ssize_t max_bytes
    cdef object sizes
    cdef int width                      # bytes per offset of a string type; 0 for other types

    def __init__(self, data, Py_ssize_t most, Py_ssize_t max_bytes, sizes):
        super().__init__(data)
        self.most = most
        self.max_bytes = max_bytes
        self.sizes = sizes
        self.width = {b"u": 4, b"z": 4, b"U": 8, b"Z": 8}.get(self.schema.schema.format, 0)
        if self.schema.schema.format == b"+s":
            raise TypeError("items must be one column, not a table; pass a column: table['x']")
        self.list_schema()

    cdef int list_schema(self) except -1:
        cdef ArrowSchema *top = &self.schema.schema
        cdef ListSchema *memory = <ListSchema *>malloc(sizeof(ListSchema))
        if memory is NULL:
            raise MemoryError
        memory.values = top[0]
        memory.child = &memory.values
        memset(top, 0, sizeof(ArrowSchema))
        top.format = b"+L"
        top.name = b""
        top.n_children = 1
        top.children = &memory.child
        top.private_data = memory
        top.release = release_schema
        return 0

    cdef Batch next(self):
        cdef Batch batch = ArrowStream.next(self)
        cdef ArrowArray *top
        cdef ListMemory *memory
        cdef Py_ssize_t i, lists, most
        if batch is None:
            return None
        top = &batch.array
        if top.length < 0 or top.offset < 0:
            raise SourceError("the array has a negative length or offset: the data is damaged")
        most = self.values_in_list(top)
        lists = (top.length + most - 1) // most
        memory = <ListMemory *>malloc(sizeof(ListMemory))
        if memory is NULL:
            raise MemoryError
        memory.offsets = <int64_t *>malloc((lists + 1) * sizeof(int64_t))
        if memory.offsets is NULL:
            free(memory)
            raise MemoryError
        for i in range(lists + 1):
            memory.offsets[i] = <int64_t>min(i * most, top.length)
        self.sizes.extend([memory.offsets[i + 1] - memory.offsets[i] for i in range(lists)])
        memory.values = top[0]
        memory.child = &memory.values
        memory.buffers[0] = NULL
        memory.buffers[1] = memory.offsets
        memset(top, 0, sizeof(ArrowArray))
        top.length = lists
        top.n_buffers = 2
        top.n_children = 1
        top.buffers = memory.buffers
        top.children = &memory.child
        top.private_data = memory
        top.release = release_array
        return batch

    cdef Py_ssize_t values_in_list(self, ArrowArray *values) noexcept:
        """Return how many average-size values fit ``max_bytes``; at most ``most``, at least 1."""
        cdef int64_t size = 0
        if values.length == 0:
            return self.most
        # Damaged buffers are detected later, when the values are encoded.
        if values.n_buffers < 3 or values.buffers[1] is NULL:
            return self.most
        if self.width == 4:
            size = ((<int *>values.buffers[1])[values.offset + values.length]
                    - (<int *>values.buffers[1])[values.offset])
        elif self.width == 8:
            size = ((<int64_t *>values.buffers[1])[values.offset + values.length]
                    - (<int64_t *>values.buffers[1])[values.offset])
        return max(1, min(self.most, self.max_bytes // max(1, size // values.length)))


cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef ListSchema *memory = <ListSchema *>schema.private_data
    if memory.values.release is not NULL:
        memory.values.release(&memory.values)
    free(memory)
    schema.release = NULL


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef ListMemory *memory = <ListMemory *>array.private_data
    if memory.values.release is not NULL:
        memory.values.release(&memory.values)
    free(memory.offsets)
    free(memory)
    array.release = NULL
