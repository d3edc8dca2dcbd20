from cpython.array cimport array

from .buffer cimport Buffer, Chunk


# The part of a chunk for one lane.
cdef struct Part:
    Py_ssize_t commands                 # number of commands
    Py_ssize_t size                     # their bytes, without large arguments
    char *p                             # where to write the next command; NULL: no room was made
    const char *limit                   # the end of the room
    const char *base                    # where the first would be, if none had large arguments
    Py_ssize_t at                       # its index in the share
    Py_ssize_t room                     # capacity, in marks
    Py_ssize_t end                      # offset after the last, with large arguments
    Py_ssize_t covered                  # rows
    long long *ends
    long long *rows
    long long *places
    long long *done


cdef class Share:
    cdef Buffer out
    cdef array places                   # 'q': index of each command in the source; None: its row
    cdef array done                     # 'q': rows covered up to each command; None: one each
    cdef Py_ssize_t rows                # total rows covered
    cdef int reserve(self, Part *part, bint plain) except -1
    cdef int widen(self) except -1
    cdef void accept(self, const Part *part) noexcept
    cdef Chunk take(self)


cdef inline bint is_one_each(Chunk chunk, Py_ssize_t start_row) noexcept:
    """Return whether each row from the first to the last makes one command."""
    cdef long long *rows = chunk.rows.data.as_longlongs
    cdef long long different = 0
    cdef Py_ssize_t i, first = start_row + chunk.first_command
    for i in range(len(chunk.rows)):
        different |= rows[i] ^ (first + i)
    return different == 0
