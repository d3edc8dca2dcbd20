from ...resp.buffer cimport Buffer
from .format cimport Format
from .pieces cimport Word
from .unique cimport UniqueNames


cdef enum Kind:
    HASH
    LIST
    LIST_FROM_HEAD                      # pushed with LPUSH
    SET
    SORTED_SET
    STRING


# The items of a key in command order; a pair is "field value" or "score member", as in commands.
cdef struct Value:
    Kind kind
    Word *words
    Py_ssize_t size                     # number of words
    Py_ssize_t *ends                    # for each command, the number of words up to its end
    Py_ssize_t commands


# A member of a sorted set and its score, or a member of a set and its integer value.
cdef struct Ranked:
    double score
    long long integer
    const char *text
    Py_ssize_t size


# Elements of a list that are stored together.
cdef struct Node:
    Py_ssize_t first
    Py_ssize_t end
    bint plain


cdef class ValueWriter:
    cdef Format format
    cdef UniqueNames unique
    cdef Ranked *ranked
    cdef Py_ssize_t ranked_room
    cdef Node *nodes
    cdef Py_ssize_t nodes_room
    cdef int put(self, Buffer b, Value *value, const Word *key) except -1
    cdef int put_hash(self, Buffer b, Value *v, const Word *key) except -1
    cdef int put_set(self, Buffer b, Value *v, const Word *key) except -1
    cdef bint has_small_commands(self, const Value *v) noexcept
    cdef bint begins_as_integers(self, const Value *v) noexcept
    cdef bint is_listpack_set(self, const Value *v, Py_ssize_t integers) noexcept
    cdef int sort_integers(self, Value *v, Py_ssize_t count) except -1
    cdef int put_integers(self, Buffer b, Value *v, const Word *key) except -1
    cdef int put_sorted_set(self, Buffer b, Value *v, const Word *key) except -1
    cdef int rank(self, const Value *v, Py_ssize_t count) except -1
    cdef int put_ranked_listpack(self, Buffer b, Py_ssize_t count, const Word *key) except -1
    cdef int put_list(self, Buffer b, const Value *v, const Word *key) except -1
    cdef int put_nodes(self, Buffer b, const Value *v, const Word *key) except -1
    cdef Py_ssize_t node_end(self, const Value *v, Py_ssize_t first, bint *plain) noexcept
    cdef bint is_large(self, Py_ssize_t size) noexcept
    cdef Py_ssize_t max_per_command(self, const Value *v) noexcept
    cdef int reserve_ranked(self, Py_ssize_t count) except -1
    cdef int reserve_nodes(self, Py_ssize_t count) except -1
