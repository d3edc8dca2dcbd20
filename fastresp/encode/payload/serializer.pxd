from ...resp.buffer cimport Buffer, Chunk
from .keys cimport Keys
from .making cimport ValueCommand
from .pieces cimport Word
from .serialized_chunk cimport SerializedChunk
from .values cimport Value, ValueWriter


cdef class Serializer:
    cdef Buffer out
    cdef ValueWriter values
    cdef readonly Keys keys
    cdef object merger                  # None if large keys are refused
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t max_argument
    cdef bint replace, file, several
    cdef int digits
    cdef bint gathering                 # whether there is a current key
    cdef Word key                       # the current key: adjacent commands create its value
    cdef Value value
    cdef Py_ssize_t words_room, ends_room
    cdef Py_ssize_t bytes               # size of the current key's items
    cdef long long expires_ms           # -1 for no time to live
    cdef long long row                  # source row of the current key's first command
    cdef Py_ssize_t first               # index of the current key's first command
    cdef object waiting                 # chunks that are not read yet
    cdef list held                      # chunks that are read, but not returned completely
    cdef Py_ssize_t given               # index of the first command not in a returned chunk
    cdef Py_ssize_t at                  # index of the command being read, or of the next command
    cdef Chunk fence                    # the beginning of a large key, whose other commands wait
    cdef bytes fenced                   # the key that the fence begins
    cdef bint anew                      # whether the current key is the fenced key, begun again
    cdef bint existed                   # whether the error says that the fenced key exists
    cdef readonly object error
    cdef Chunk failed_in                # the chunk with the error
    cdef readonly Py_ssize_t made       # number of keys
    cdef long long now_ms
    cdef bint fencing                   # whether the next chunk is a fence
    cdef readonly Py_ssize_t expiring   # number of keys with a time to live
    cdef list one(self, Chunk chunk)
    cdef int fail(self, error) except -1
    cdef Chunk continued(self, Chunk chunk)
    cdef int take(self, const ValueCommand *m, const char *start, long long row) except -1
    cdef int pass_on(self, const ValueCommand *m, const char *start, long long row) except -1
    cdef int check(self, const ValueCommand *m, bint joins, long long row) except -1
    cdef int open(self, const ValueCommand *m, long long row) except -1
    cdef int gather(self, const ValueCommand *m, long long row) except -1
    cdef int close(self) except -1
    cdef int put_restore(self) except -1
    cdef int put_record(self) except -1
    cdef int mark(self) except -1
    cdef int limit(self, long long row) except -1
    cdef Py_ssize_t held_bytes(self) except -1
    cdef SerializedChunk cut(self)
    cdef int give_up(self, words, long long row, Py_ssize_t command=*) except -1
