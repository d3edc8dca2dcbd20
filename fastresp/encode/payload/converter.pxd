from ...resp.buffer cimport Buffer
from .decoding cimport Cursor
from .duplicates cimport Keys
from .encoding cimport Word
from .stored_values cimport Elements

cdef enum:
    # convert(): the key has expired with all fields of its hash.
    EXPIRED_VALUE = -2


cdef class Converter:
    cdef int version                    # the RDB version of the target
    cdef bint valkey                    # whether the target is Valkey
    cdef bint source_valkey
    cdef int sizes                      # LONG_SIZE or SHORT_SIZE of the target; 0 if unknown
    cdef bint drops                     # whether to drop expiries that the target can't store
    cdef readonly Py_ssize_t dropped    # number of dropped times of expiry
    cdef readonly Py_ssize_t expired    # number of fields left out because they had expired
    cdef long long now                  # the current time in ms since 1970
    cdef Elements elements
    cdef Keys names                     # the fields or members of the value being checked
    cdef Buffer out
    # Set ``value`` to the value for the target, and return its type, or EXPIRED_VALUE. ``value`` is
    # valid until the next call, while ``data`` is. ``check`` is as in converted().
    cdef int convert(
        self, int kind, const char *data, Py_ssize_t size, Word *value, bint check
    ) except -1
    cdef bint knows(self, int kind) noexcept nogil
    cdef bint can_pass(self, int kind, const char *data, Py_ssize_t size, bint check) except -1
    cdef int check_names(self, int kind) except -1
