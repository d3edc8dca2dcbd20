from ...resp.grammar cimport Incoming
from .overwrites cimport OverwriteTracker
from .write_command cimport ExpectedItems, Item, Read, ReadPlan


cdef class Comparison(Incoming):
    cdef object differences
    cdef object queue                   # reads for later chunks
    cdef ReadPlan plan                      # reads for the current chunk; None if there is no chunk
    cdef Py_ssize_t read_index                # index of the current read
    cdef bint exact, recheck
    cdef double since
    cdef readonly bint full
    cdef readonly Py_ssize_t replies
    cdef readonly Py_ssize_t values
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t waiting_bytes
    cdef readonly object error_reply
    cdef long long last_row             # the last compared row
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
    cdef OverwriteTracker overwrites
    cdef ExpectedItems expected                 # the expected values of the current reply

    cdef int accept(self, ReadPlan plan) except -1
    cdef int advance(self) except -1
    cdef Read *begin_reply(self) except NULL
    cdef int end_reply(self) except -1
    cdef int process_line(self, const char *p, const char *end) except -1
    cdef int begin_array(self, const Read *read, long long n) except -1
    cdef int end_element(self) except -1
    cdef Py_ssize_t item_index(self) noexcept
    cdef Item *count_item(self, Py_ssize_t index) except NULL
    cdef int begin_value(self, long long n) except -1
    cdef int compare_text(self, const char *data, long long n) except -1
    cdef const char *read_value(self, const char *p, const char *end) except NULL
    cdef int compare_unequal(self, const Item *item, bytes found, long long size) except -1
    cdef int compare_number(self, const Read *read, long long n) except -1
    cdef int compare_ttl(self, const Read *read, long long found) except -1
    cdef int compare_count(self, const Read *read, long long n) except -1
    cdef Py_ssize_t count_rows(self, const Read *read) noexcept
    cdef int process_error(self, bytes message) except -1
    cdef int add_difference(
        self, str kind, const Item *item, Py_ssize_t index, object found, long long size
    ) except -1
