"""The reads for a chunk of the source: commands that read its values back from the server."""

from ...resp.buffer cimport Chunk
from ...resp.out cimport Reference
from ...resp.slots cimport Walk, end_of
from .statement cimport Form, Statement


# The kind of a reply.
cdef enum Kind:
    PASSED          # no reply: the commands have no read
    ONE             # a bulk string: GET, JSON.GET
    SEVERAL         # an array of bulk strings: MGET, HMGET, ZMSCORE
    FLAGS           # an array of 0 and 1: SMISMEMBER
    RANGE           # an array of bulk strings, which may be shorter: LRANGE
    NAME            # a simple string: TYPE
    NUMBER          # an integer: EXISTS, PTTL, PEXPIRETIME, HLEN


# A read and the commands that it covers, or commands without a read.
cdef struct Ask:
    Kind kind
    Form form
    Py_ssize_t command          # index of the first covered command
    Py_ssize_t commands         # number of covered commands
    Py_ssize_t skipped          # items of the first command that other reads cover
    Py_ssize_t items
    # COUNT: number of items that the source names. RPUSH, LPUSH: list index at which the items
    # start. LSET: list index of the item.
    long long number


cdef class Asks:
    cdef Chunk chunk
    cdef Ask *asks              # owned, from realloc
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef Ask *add(self, Kind kind, Form form, Py_ssize_t command) except NULL


cdef Kind kind_of(Form form) noexcept


# Iterates over the commands of a chunk.
cdef struct Cursor:
    Py_ssize_t command          # index of the command at ``walk``
    const Reference *large
    Py_ssize_t extra
    Walk walk


cdef inline void start_at(Cursor *c, Chunk chunk) noexcept:
    c.command = c.extra = 0
    c.large = chunk.references
    c.walk.base = c.walk.p = chunk.data
    c.walk.large = chunk.references
    c.walk.stop = chunk.references + chunk.n_references


cdef inline void next_command(Cursor *c, Chunk chunk) noexcept:
    c.walk.p = end_of(chunk, c.command, &c.large, &c.extra)
    c.walk.large = c.large
    c.command += 1
