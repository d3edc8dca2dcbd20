from cpython.array cimport array

from .buffer cimport Buffer, Chunk


# The part of a chunk for one lane.
cdef struct Part:
    Py_ssize_t commands                 # number of commands
    Py_ssize_t size                     # size of the commands in bytes, without large arguments
    char *p                             # where to write the next command; NULL if there is no room
    const char *limit                   # the end of the room for commands
    const char *base                    # p minus the offset of the next command
    Py_ssize_t at                       # index in the share of the next command
    Py_ssize_t room                     # capacity of ends, rows, places and done
    Py_ssize_t end                      # end offset of the last command, with large arguments
    Py_ssize_t covered                  # number of rows covered so far
    long long *ends
    long long *rows
    long long *places
    long long *done


cdef class Share:
    cdef Buffer out
    cdef array places                   # 'q': source index of each command; None if equal to rows
    cdef array done                     # 'q': rows covered up to each command; None for 1, 2, 3...
    cdef Py_ssize_t rows                # number of rows covered
    cdef int reserve(self, Part *part, bint plain) except -1
    cdef int widen(self) except -1
    cdef void accept(self, const Part *part) noexcept
    cdef Chunk take(self)


cdef inline bint is_one_each(Chunk chunk, Py_ssize_t start_row) noexcept:
    """Return whether each row of a chunk makes exactly one command."""
    cdef long long *rows = chunk.rows.data.as_longlongs
    cdef long long different = 0
    cdef Py_ssize_t i, first = start_row + chunk.first_command
    for i in range(len(chunk.rows)):
        different |= rows[i] ^ (first + i)
    return different == 0
