# cython: language_level=3, cdivision=True
"""Wrap an Arrow array as an array of lists, each of which becomes one command."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ..encode.columns.arrow cimport (
    ArrowArray,
    ArrowSchema,
    ArrowStream,
    Batch,
)

from ..outcome.errors import SourceError


# Memory of a list array, which the pointers in the array refer to.
cdef struct Held:
    ArrowArray values
    ArrowArray *child
    const void *buffers[2]
    int64_t *offsets


cdef struct HeldSchema:
    ArrowSchema values
    ArrowSchema *child


cdef class ListedStream(ArrowStream):
    """Reads Arrow data of one column as batches of lists of the column's values.

    Args:
        data: an array or a stream of arrays of one type, not of structs.
        most: maximum values per list.
        max_bytes: approximate maximum bytes of a list of strings or bytes, which may lower
            ``most``.
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
        cdef HeldSchema *held = <HeldSchema *>malloc(sizeof(HeldSchema))
        if held is NULL:
            raise MemoryError
        held.values = top[0]
        held.child = &held.values
        memset(top, 0, sizeof(ArrowSchema))
        top.format = b"+L"
        top.name = b""
        top.n_children = 1
        top.children = &held.child
        top.private_data = held
        top.release = release_schema
        return 0

    cdef Batch next(self):
        cdef Batch batch = ArrowStream.next(self)
        cdef ArrowArray *top
        cdef Held *held
        cdef Py_ssize_t i, lists, most
        if batch is None:
            return None
        top = &batch.array
        if top.length < 0 or top.offset < 0:
            raise SourceError("the array has a negative length or offset: the data is damaged")
        most = self.values_in_list(top)
        lists = (top.length + most - 1) // most
        held = <Held *>malloc(sizeof(Held))
        if held is NULL:
            raise MemoryError
        held.offsets = <int64_t *>malloc((lists + 1) * sizeof(int64_t))
        if held.offsets is NULL:
            free(held)
            raise MemoryError
        for i in range(lists + 1):
            held.offsets[i] = <int64_t>min(i * most, top.length)
        self.sizes.extend([held.offsets[i + 1] - held.offsets[i] for i in range(lists)])
        held.values = top[0]
        held.child = &held.values
        held.buffers[0] = NULL
        held.buffers[1] = held.offsets
        memset(top, 0, sizeof(ArrowArray))
        top.length = lists
        top.n_buffers = 2
        top.n_children = 1
        top.buffers = held.buffers
        top.children = &held.child
        top.private_data = held
        top.release = release_array
        return batch

    cdef Py_ssize_t values_in_list(self, ArrowArray *values) noexcept:
        """Return the number of values per list, so that an average list fits ``max_bytes``."""
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
    cdef HeldSchema *held = <HeldSchema *>schema.private_data
    if held.values.release is not NULL:
        held.values.release(&held.values)
    free(held)
    schema.release = NULL


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef Held *held = <Held *>array.private_data
    if held.values.release is not NULL:
        held.values.release(&held.values)
    free(held.offsets)
    free(held)
    array.release = NULL
