from ...resp.buffer cimport Buffer
from .duplicates cimport UniqueNames
from .encoding cimport Word
from .format cimport Format

cdef enum ValueKind:
    HASH
    LIST
    LIST_FROM_HEAD                      # pushed with LPUSH
    SET
    SORTED_SET
    STRING


# The items of a key, in the order of the commands: "field value" and "score member", as in HSET
# and ZADD.
cdef struct Value:
    ValueKind kind
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
cdef struct ListNode:
    Py_ssize_t first
    Py_ssize_t end
    bint plain


cdef class ValueWriter:
    cdef Format format
    cdef UniqueNames unique
    cdef Ranked *ranked
    cdef Py_ssize_t ranked_room
    cdef ListNode *nodes
    cdef Py_ssize_t nodes_room
    cdef int put(self, Buffer b, Value *value, const Word *key) except -1


# Verbs of commands that create no value; any other verb is the kind of the created value.
cdef enum:
    OTHER = -1
    EXPIRE = 8
    PEXPIRE = 9


# A command that creates a value, or sets its time to live.
cdef struct ValueCommand:
    int verb
    Word name
    Word key
    const char *items
    const char *end
    Py_ssize_t words                    # number of arguments after the key


cdef void read_value_command(ValueCommand *command, const char *p, const char *end) noexcept nogil
cdef str why_invalid(const ValueCommand *command)
cdef long long time_of(const ValueCommand *command) noexcept nogil
cdef long long time_of_set(const ValueCommand *command, const char *p) noexcept nogil
cdef str shown(const Word *word)
