from libc.stdint cimport uint64_t

from .grammar cimport known_length_end

cdef enum:
    RULES_SIZE = 18
    LONGEST_NAME = 8
    # A longer number is not merged. A number up to this length is always in range, and repr() of a
    # float has up to 24 characters.
    NUMBER_BYTES = 40
    # A number of 19 digits is below 2^64, the limit of both parts of a stream ID.
    ID_DIGITS = 19
    # Room for EX or PX, and the longest plain number of seconds or milliseconds.
    TAIL_BYTES = 32
    TIME_DIGITS = 9

# Requirements on arguments: with them, a server never refuses one item and writes another.
cdef enum Check:
    ANYTHING
    PAIR            # a key and a value, without options
    TIMED           # a PAIR, then EX or PX with a plain number
    SCORE           # a score and a member of a sorted set
    PLACE           # longitude, latitude, and a member
    STREAM_ID
    OPENS           # not merged: begins a transaction
    CLOSES          # not merged: ends a transaction


cdef struct MergeRule:
    const char *name
    int name_size
    int shared                          # arguments before the items: the name, or name and key
    int size                            # number of arguments of an item
    Check check
    const char *merged                  # name of the merged command, if different
    int number                          # index in RULES


# A parsed command of a chunk.
cdef struct ParsedCommand:
    const char *name                    # start of the name, with its header
    const char *items                   # end of the shared arguments
    const char *tail                    # end of the items: the start of shared options
    const char *end
    bint small                          # whether the name SET is in lower case
    const MergeRule *rule               # NULL if the command can't be merged
    Py_ssize_t words                    # number of all arguments
    Py_ssize_t item_words               # number of arguments in the items


# The last name read, and its rule: most commands have the same name as their predecessor.
cdef struct LastName:
    char name[LONGEST_NAME]
    long long size
    const MergeRule *rule


# The field names of a HIMPORT SET. Each name is a bulk string.
cdef struct FieldSet:
    const char *names
    const long long *sizes
    Py_ssize_t count
    uint64_t digest
    const char *head                    # the command up to the key
    Py_ssize_t head_size
    const char *name                    # the name of the field set, as a bulk string
    Py_ssize_t name_size
    bint scripted                       # whether HIMPORT can't write these fields


# A parsed HSET.
cdef struct HashWrite:
    const char *key
    const char *pairs
    const char *end
    Py_ssize_t count                    # number of field-value pairs


cdef inline const char *next_word(const char **p, long long *size) noexcept nogil:
    """Return the bytes of the argument at p, and move p past the argument."""
    cdef const char *text = known_length_end(p[0] + 1, size)
    p[0] = text + size[0] + 2
    return text


cdef frozenset names_of(int number)
cdef const char *read_name(ParsedCommand *c, const char *p, LastName *last) noexcept nogil
cdef void read_command(
    ParsedCommand *c, const char *p, const char *end, LastName *last
) noexcept nogil
cdef bint is_word(const char *text, long long size, const char *capitals) noexcept nogil
cdef bint is_score(const char *p, const char *end) noexcept nogil
cdef bint read_hset(HashWrite *h, const char *start, const char *end) noexcept nogil
cdef bint has_fields(HashWrite *h, const FieldSet *s) noexcept nogil
cdef char *put_values(const HashWrite *h, const FieldSet *s, char *p) noexcept nogil
cdef uint64_t digest_of(HashWrite *h) noexcept nogil
cdef list field_names(const HashWrite *h)
