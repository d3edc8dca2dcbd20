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
    cdef object merger                  # None: no large keys
    cdef Py_ssize_t most_bytes
    cdef Py_ssize_t most_argument
    cdef bint replace, file, several
    cdef int digits
    # The open key: gathered from adjacent commands.
    cdef bint gathering
    cdef Word key
    cdef Value value
    cdef Py_ssize_t words_room, ends_room
    cdef Py_ssize_t bytes
    cdef long long expires_ms           # -1: never
    cdef long long row                  # of its first command
    cdef Py_ssize_t first               # index of that command
    # The commands that are in no returned chunk yet.
    cdef object waiting                 # chunks to be read
    cdef list held                      # chunks read, with the commands of the open key
    cdef Py_ssize_t given               # index of the first of these commands
    cdef Py_ssize_t at                  # index of the first unread command
    cdef Chunk fence                    # a large key's beginning; its other commands wait
    cdef bytes fenced                   # that key
    cdef bint anew                      # the open key is this key: its beginning was refused
    cdef bint existed                   # because the key existed
    cdef readonly object error
    cdef Chunk failed_in                # the chunk that was read when it failed
    cdef readonly Py_ssize_t made       # keys
    cdef long long now_ms
    cdef bint fencing                   # whether the next chunk is a fence
    cdef readonly Py_ssize_t expiring   # keys with a time to live
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
