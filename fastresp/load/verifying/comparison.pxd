from ...resp.grammar cimport Incoming
from .asks cimport Ask, Asks
from .items cimport Items
from .statement cimport Item
from .watch cimport Watch


cdef class Comparison(Incoming):
    cdef object kept
    cdef object queue                   # reads for later chunks
    cdef Asks asks                      # reads for the current chunk; None if there is no chunk
    cdef Py_ssize_t at                  # index of the current read
    cdef bint again, exact
    cdef double since
    cdef readonly bint full
    cdef readonly Py_ssize_t replies
    cdef readonly Py_ssize_t values
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t held_bytes
    cdef readonly object refused
    cdef long long row                  # the last compared row
    # The current read:
    cdef Py_ssize_t index               # index of the next element in the reply
    cdef Py_ssize_t left                # number of elements that have not arrived
    cdef Py_ssize_t size                # total number of elements
    # The current value, if it arrives in parts:
    cdef long long missing              # bytes that have not arrived, including the CRLF
    cdef long long value_size
    cdef long long value_at
    cdef bint equal                     # whether the value is equal so far
    cdef bytearray found
    cdef Watch watch
    cdef Items source                   # the expected values of the current reply

    cpdef int accept(self, Asks asks) except -1
    cdef int settle(self) except -1
    cdef Ask *begin_reply(self) except NULL
    cdef int end_reply(self) except -1
    cdef int understand(self, const char *p, const char *end) except -1
    cdef int begin_array(self, const Ask *ask, long long n) except -1
    cdef int end_element(self) except -1
    cdef Py_ssize_t item_at(self) noexcept
    cdef Item *open_item(self, Py_ssize_t index) except NULL
    cdef int begin_text(self, long long n) except -1
    cdef int take_text(self, const char *data, long long n) except -1
    cdef const char *read_value(self, const char *p, const char *end) except NULL
    cdef int take_unequal(self, const Item *item, bytes found, long long size) except -1
    cdef int take_number(self, const Ask *ask, long long n) except -1
    cdef int take_time(self, const Ask *ask, long long found) except -1
    cdef int take_count(self, const Ask *ask, long long n) except -1
    cdef Py_ssize_t rows_until(self, const Ask *ask) noexcept
    cdef const char *at_line(self) noexcept
    cdef int take_error(self, bytes words) except -1
    cdef int differ(
        self, str kind, const Item *item, Py_ssize_t index, object found, long long size
    ) except -1
