from .grammar cimport known_length_end

cdef enum:
    VERBS_SIZE = 18
    LONGEST_NAME = 8
    # repr() of a float has at most 24 characters; no number of this length is out of range.
    NUMBER_BYTES = 40
    # A number of 19 digits is below 2^64, the limit of both parts of a stream id.
    ID_DIGITS = 19
    # EX or PX, and the longest plain time.
    TAIL_BYTES = 32
    TIME_DIGITS = 9

# Requirements on the arguments, so that no server can refuse an item and run the others.
cdef enum Check:
    ANYTHING
    PAIR            # the key and its value: with options it is another command
    TIMED           # PAIR, and EX or PX with a plain number
    SCORE           # a score and a member of a sorted set
    PLACE           # longitude, latitude, and a member
    STREAM_ID
    OPENS           # not merged: it begins a transaction
    CLOSES          # not merged: it ends one


cdef struct Verb:
    const char *name
    int name_size
    int shared                          # number of arguments before the items: the name, and a key
    int size                            # the number of arguments of an item
    Check check
    const char *merged                  # the merged command's name, if it differs
    int number                          # its index in the table


# A parsed command of the chunk.
cdef struct Command:
    const char *name                    # its first argument, with the header
    const char *items                   # end of the shared arguments
    const char *tail                    # end of the items: options, which are shared
    const char *end
    bint small                          # whether SET is written in lower case
    const Verb *verb                    # NULL: it can't be merged
    Py_ssize_t words                    # number of all arguments
    Py_ssize_t item_words


# The last name read; most commands have the same.
cdef struct Last:
    char name[LONGEST_NAME]
    long long size
    const Verb *verb


cdef inline const char *next_word(const char **p, long long *size) noexcept nogil:
    """Return the text of the argument at p, and move p behind it."""
    cdef const char *text = known_length_end(p[0] + 1, size)
    p[0] = text + size[0] + 2
    return text


cdef frozenset names_of(int number)
cdef const char *read_name(Command *c, const char *p, Last *last) noexcept nogil
cdef void read_command(Command *c, const char *p, const char *end, Last *last) noexcept nogil
cdef bint is_word(const char *text, long long size, const char *capitals) noexcept nogil
cdef bint is_score(const char *p, const char *end) noexcept nogil
