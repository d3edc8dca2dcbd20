from .buffer cimport Chunk
from .out cimport Reference
from .share cimport Part
from .slots cimport SLOTS, LastRule, Rules, Walk

cdef enum:
    # The maximum size of ``head``.
    HEAD_ROOM = 64


cdef class Router:
    cdef list shares
    cdef list mergers
    cdef object merger
    cdef Py_ssize_t start_bytes         # initial memory of a share, in bytes
    cdef short[SLOTS] lanes             # lane of each slot
    cdef list serving                   # the lanes that have slots
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t full_bytes
    cdef bint strict                    # whether this is a cluster
    cdef int keyless                    # in a cluster, the lane of keyless commands; -1 for none
    cdef tuple refused                  # the arguments of refusal(); None if nothing was refused
    cdef Chunk refused_in               # the chunk of the refused command
    cdef Rules rules
    cdef Part *parts                    # for each lane, the part of the current chunk
    cdef short *chosen                  # the lane of each command of a chunk
    cdef Py_ssize_t room                # capacity, in commands
    cdef LastRule last
    cdef char[HEAD_ROOM] head           # the bytes of the last command before its key
    cdef Py_ssize_t head_size           # 0 if the last key was not argument 1
    cdef int transaction                # the lane of the open transaction; -1 outside
    cdef Py_ssize_t begun               # index in the chunk of the transaction's MULTI
    cdef int of_transaction             # the slot of the transaction's first key, or NO_KEY
    cdef bint plain                     # whether each row so far made one command
    cdef readonly bint paused
    cdef Py_ssize_t start_row
    cdef bint for_all
    cdef Py_ssize_t commands            # number of commands in the returned chunks
    cdef Py_ssize_t rows                # number of rows covered by the returned chunks
    cdef Py_ssize_t row                 # index of the last copied row
    cdef int more(self, Py_ssize_t lanes) except -1
    cdef Py_ssize_t copy_alike(self, Chunk chunk) except -1
    cdef int extend(self, int lane, Py_ssize_t size) except -1
    cdef void accept(self) noexcept
    cdef Py_ssize_t assign(self, Chunk chunk, Py_ssize_t first) except -1
    cdef Py_ssize_t begin_of(self, Chunk chunk, Py_ssize_t index) noexcept
    cdef int check_plain(self, Chunk chunk, Py_ssize_t first, Py_ssize_t count) noexcept
    cdef int copy(self, Chunk chunk, Py_ssize_t first, Py_ssize_t count) except -1
    cdef int put(
        self, int lane, Chunk chunk, Py_ssize_t i, const char *start, const char *end,
        const Reference *first, const Reference *large,
    ) except -1
    cdef void note(self, Part *part, Chunk chunk, Py_ssize_t i) noexcept
    cdef list take_chunks(self, bint everything)
    cdef int choose(self, Chunk chunk, Walk *walk, Py_ssize_t index) except -2
    cdef bint is_for_all(self, Walk start) noexcept
    cdef int keep_head(self, const char *p) noexcept
    cdef int refuse(self, Chunk chunk, Walk *walk, Py_ssize_t index, int why) except -2
    cdef int ahead(self, Chunk chunk, Py_ssize_t index) noexcept
