from libc.stdint cimport int64_t, uint64_t

from .decoding cimport Cursor, Form, Packed, Stored
from .encoding cimport Word
from .format cimport SCORE_ROOM
from .stream_nodes cimport StreamNode

cdef enum:
    MAX_WORDS = 3
    # value_end(): the value is longer, or damaged.
    INCOMPLETE = -1
    DAMAGED = -2


# Return the size in bytes of the value that begins at ``data``, or INCOMPLETE, or DAMAGED. Checks
# the lengths of texts, but not the contents of compact forms, which Elements checks.
cdef Py_ssize_t value_end(int kind, const char *data, Py_ssize_t size) noexcept nogil
# Return why a value is damaged, after value_end() returned DAMAGED.
cdef str why_damaged(int kind, const char *data, Py_ssize_t size)
# Return the size of the largest text of a value, after decompression. Raise SourceError if the
# value is damaged, or has another size.
cdef Py_ssize_t largest_text(int kind, const char *data, Py_ssize_t size) except -1
# Return the type of a value as TYPE names it; "module" for values of modules.
cdef str type_name(int kind)
# Return the address of bytes, even if there are no bytes.
cdef const char *first_byte(const unsigned char[::1] data) noexcept


# Memory for a text that is decompressed.
cdef struct Scratch:
    char *memory                        # owned, from malloc
    Py_ssize_t size


cdef class Elements:
    cdef readonly int words             # number of words per item
    cdef Word[MAX_WORDS] item           # the last item, of next_item()
    cdef const char *fault              # why the value is damaged; NULL if it is not
    cdef Py_ssize_t size                # size of the value in bytes
    cdef Cursor cursor
    cdef int kind
    cdef int next_word                  # index in the item of the next word
    cdef Form form                      # the form of all nodes; NO_FORM if the texts are plain
    cdef uint64_t left                  # number of plain items or nodes to read
    cdef uint64_t first_expiry          # the time that the expiries of a hash are relative to
    cdef Packed node                    # the compact form being read
    cdef StreamNode stream              # of a stream, the data that the node's entries share
    cdef Scratch[MAX_WORDS + 1] scratch
    cdef char[MAX_WORDS][SCORE_ROOM] numbers

    cdef bint open(self, int kind, const char *data, Py_ssize_t size) noexcept nogil
    cdef int next(self, Word *word) noexcept nogil
    cdef int next_item(self) noexcept nogil
    cdef object error(self)
    cdef void release(self, Py_ssize_t most) noexcept nogil
    cdef int stop(self, const char *fault) noexcept nogil
    cdef char *expanded(self, int at, const Stored *s) noexcept nogil
    cdef bint keep(self, int at, const Stored *s) noexcept nogil
    cdef bint keep_number(self, int at, int64_t number) noexcept nogil
    cdef int keep_expiry(self, int64_t expiry) noexcept nogil
    cdef int keep_double(self, int64_t bits) noexcept nogil
    cdef int read_plain(self) noexcept nogil
    cdef int read_score(self) noexcept nogil
    cdef int open_node(self) noexcept nogil
    cdef int read_entries(self) noexcept nogil
    cdef int read_stream(self) noexcept nogil
