from libc.stdint cimport int64_t, uint64_t

from ...encode.payload.decoding cimport Cursor, Stored
from ...encode.payload.encoding cimport Word
from ...encode.payload.stored_values cimport Elements


cdef enum:
    # The number of bytes of a key that are kept for errors.
    KEPT = 64


# A key in the file; its memory is valid until the next step.
cdef struct Entry:
    Word key
    int kind                    # the RDB type of the value
    const char *value
    Py_ssize_t size             # bytes of the value
    int64_t expires             # in milliseconds since 1970; -1 for never


# The start of a key, for errors.
cdef struct KeptKey:
    char[KEPT] text
    Py_ssize_t size             # of the whole key
    int kind


# Why step() returned.
cdef enum Step:
    AT_KEY
    AT_OPCODE                   # at an opcode that belongs to no key
    AT_CUT                      # more bytes are needed
    AT_DAMAGE                   # see RdbReader.problem


cdef class RdbReader:
    cdef object read
    cdef readonly str name
    cdef bytes pattern          # of the wanted keys
    cdef Word glob              # the same pattern; NULL for all keys
    cdef uint64_t wanted_kinds  # a bit for each RDB type
    cdef int wanted_database    # -1 for all databases
    cdef bytes block            # the bytes in memory
    cdef Cursor at              # the next byte of the block to read
    cdef const char *summed     # the end of the bytes that the checksum covers
    cdef uint64_t crc
    cdef int64_t block_offset   # where the block starts in the file
    cdef const char *problem    # why the bytes are damaged
    cdef const char *bad_value  # the damaged value, if ``problem`` is BAD_VALUE
    cdef int bad_kind           # its RDB type
    cdef Elements strings       # decodes keys
    cdef KeptKey last           # the last whole key
    cdef KeptKey other          # the first matching key of another type
    cdef bint ended
    cdef object error           # the error that batch() has yet to raise
    cdef readonly int version
    cdef readonly bint valkey
    cdef readonly int database
    cdef readonly dict aux
    cdef readonly list functions
    cdef readonly Py_ssize_t keys, unmatched, other_types, other_databases

    cdef Step step(self, Entry *entry) noexcept nogil
    cdef bint is_wanted(self, Entry *entry) noexcept nogil
    cdef Step next_key(self, Entry *entry) noexcept nogil
    cdef bint pass_value(self, Cursor *c, int kind) noexcept nogil
    cdef Step stopped(self, Cursor *c) noexcept nogil
    cdef bint decode(
        self, Cursor *c, const char *start, const Stored *stored, Word *word
    ) noexcept nogil
    cdef bint advance(self, Step step) except -1
    cdef bint read_opcode(self, int code, Cursor *c) except -1
    cdef bint read_aux(self, Cursor *c) except -1
    cdef bytes read_string(self, Cursor *c)
    cdef int fill(self) except -1
    cdef int hold(self, bytes block) except -1
    cdef void add_to_checksum(self) noexcept
    cdef int read_header(self) except -1
    cdef int check_end(self) except -1
    cdef object damaged(self, str reason)
    cdef str prefix(self)
    cdef str progress(self)
