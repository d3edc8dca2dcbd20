# cython: language_level=3, cdivision=True
"""Read Arrow data from any library through the PyCapsule protocol, batch by batch."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.string cimport memset

import os

from ...outcome.errors import FastrespError, SourceError
from .exporting import Described, exported, names_with_nul


cdef class Schema:
    """The names and types of columns, and information that Arrow's C interface lacks."""

    def __dealloc__(self):
        if self.schema.release is not NULL:
            self.schema.release(&self.schema)


cdef class Batch:
    """Some rows of all columns; chunks that refer to a batch's memory keep the batch alive."""

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)


cdef class ArrowStream:
    """Iterate over the batches of an object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

    Source of the protocol:
    https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

    Args:
        data: the object.
        following: a function to call after the last batch. It returns a capsule with the next
            stream, whose schema may differ, or None if there are no more streams.

    Raises:
        SourceError: the source can't export its columns.
    """

    def __init__(self, data, following=None):
        self.schema = Schema()
        self.following = following
        try:
            self.source, self.schema.unknown, self.schema.single = exported(data)
            if hasattr(self.source, "__arrow_c_stream__"):
                capsules = (self.source.__arrow_c_stream__(),)
            else:
                capsules = self.source.__arrow_c_array__()
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            if isinstance(error, FastrespError):
                raise
            # pyarrow's error classes; other errors are the source's own. Some of these errors have
            # two arguments: the problem, and the column.
            message = "; ".join([str(argument) for argument in error.args]) or type(error).__name__
            raise SourceError(
                f"the columns of this {type(data).__name__} can't be converted to Arrow: "
                f"{message}; convert their values to text or numbers first, or load them as rows"
            ) from error
        if len(capsules) == 1:
            self.open_stream(capsules[0])
        else:
            self.open_array(capsules[0], capsules[1])
        self.query_source()

    def __dealloc__(self):
        if self.stream.release is not NULL:
            self.stream.release(&self.stream)

    cdef int query_source(self) except -1:
        """Query the source for column information that the C interface lacks."""
        if isinstance(self.source, Described):
            self.schema.unknown = self.source.unknown
        self.schema.names = names_with_nul(self.source)
        return 0

    cdef int open_stream(self, capsule) except -1:
        cdef ArrowArrayStream *source = <ArrowArrayStream *>PyCapsule_GetPointer(
            capsule, b"arrow_array_stream"
        )
        cdef int code
        if source.release is NULL:
            raise SourceError("this stream of columns was already used; pass a new one")
        # Move the stream out of the capsule, which must not release it afterwards.
        self.stream = source[0]
        source.release = NULL
        with nogil:
            code = self.stream.get_schema(&self.stream, &self.schema.schema)
        if code:
            memset(&self.schema.schema, 0, sizeof(ArrowSchema))
            raise self.failure(code)
        return 0

    cdef int open_array(self, schema, array) except -1:
        cdef ArrowSchema *types = <ArrowSchema *>PyCapsule_GetPointer(schema, b"arrow_schema")
        cdef ArrowArray *values = <ArrowArray *>PyCapsule_GetPointer(array, b"arrow_array")
        if types.release is NULL or values.release is NULL:
            raise SourceError("these columns were already used; pass new ones")
        self.schema.schema = types[0]
        types.release = NULL
        self.single_batch = Batch()
        self.single_batch.array = values[0]
        values.release = NULL
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    cdef Batch next(self):
        """Return the next batch, or None if there are no more batches."""
        cdef Batch batch = self.single_batch
        cdef int code
        if batch is not None or self.stream.release is NULL:
            self.single_batch = None
            return batch
        batch = Batch()
        self.waiting = True
        try:
            # Threads of the source may need the GIL.
            with nogil:
                code = self.stream.get_next(&self.stream, &batch.array)
        finally:
            self.waiting = False
            if self.ended:
                self.release_columns()
        if code:
            memset(&batch.array, 0, sizeof(ArrowArray))
            raise self.failure(code)
        return None if batch.array.release is NULL else batch

    cdef bint open_next(self) except -1:
        """After the last batch, open the next stream; return False if there is no next stream."""
        if self.following is None or self.ended:
            return False
        capsule = self.following()
        if capsule is None:
            return False
        if self.stream.release is not NULL:
            self.stream.release(&self.stream)
            self.stream.release = NULL
        self.schema = Schema()
        self.schema.unknown = {}
        self.waiting = True
        try:
            self.open_stream(capsule)
            self.query_source()
        finally:
            self.waiting = False
            if self.ended:
                self.release_columns()
        return not self.ended

    def release_columns(self):
        """Release the source, now or as soon as no thread waits for the source."""
        self.ended = True
        self.schema = self.single_batch = None
        if not self.waiting and self.stream.release is not NULL:
            self.stream.release(&self.stream)
            self.stream.release = NULL

    cdef object failure(self, int code):
        cdef const char *text = NULL
        # A Table keeps the exception itself; Arrow passes only the text.
        error = getattr(self.source, "error", None)
        if isinstance(error, BaseException):
            return error
        if self.stream.release is not NULL:
            text = self.stream.get_last_error(&self.stream)
        message = os.strerror(code) if text is NULL else text.decode(errors="replace").strip()
        if "Detail: Python exception:" in message:
            message = message.splitlines()[-1]      # pyarrow passes the whole traceback
        if message == "KeyboardInterrupt":
            return KeyboardInterrupt()          # Ctrl-C while Arrow waited for Python code
        return SourceError(f"the source of the columns failed: {message}")
