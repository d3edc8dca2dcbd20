# cython: language_level=3, cdivision=True
# distutils: language = c++
# distutils: extra_compile_args = -std=c++17
"""Parse the commands that make values, and write the values as a server stores them.

Values are written in the format of DUMP and of RDB files, in the encoding that the server would
choose if it ran the same commands.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from ...resp.buffer cimport Buffer, make_room
from ...resp.grammar cimport digits_end, known_length_end
from ...resp.mergeable cimport is_score, is_word, next_word
from .duplicates cimport UniqueNames, resize
from .encoding cimport (
    BINARY_SORTED_SET, ENTRY_ROOM, HASH_LISTPACK, INTEGER_SET, LISTPACK_HEADER, LISTPACK_NODE,
    LIST_OF_NODES, PLAIN_HASH, PLAIN_LIST, PLAIN_NODE, PLAIN_SET, PLAIN_STRING, SET_LISTPACK,
    SORTED_SET_LISTPACK, Word, begin_length, begin_listpack, end_length, end_listpack, entry_size,
    is_disputed, put_entry, put_item, put_size, put_text, put_type, put_word, read_integer,
)
from .format cimport Format, read_score, score_text

from ...outcome.messages import shown_argument

cdef extern from *:
    """
    #include <algorithm>
    #include <cstring>

    /* Sort by score, then by the bytes of the member. */
    template <typename T> static void fastresp_rank(T *p, Py_ssize_t n) {
        std::sort(p, p + n, [](const T &a, const T &b) {
            if (a.score != b.score)
                return a.score < b.score;
            int order = std::memcmp(a.text, b.text, std::min(a.size, b.size));
            return order < 0 || (order == 0 && a.size < b.size);
        });
    }

    template <typename T> static void fastresp_rank_integers(T *p, Py_ssize_t n) {
        std::sort(p, p + n, [](const T &a, const T &b) {
            return a.integer < b.integer;
        });
    }
    """
    void rank_members "fastresp_rank"(Ranked *p, Py_ssize_t n) noexcept nogil
    void rank_integers "fastresp_rank_integers"(Ranked *p, Py_ssize_t n) noexcept nogil

cdef enum:
    # Bytes that a server adds to the size of an element for its header. Source: quicklist.c.
    NODE_OVERHEAD = 8

# Servers create no listpack above 1 GiB (LISTPACK_MAX_SAFETY_LIMIT in listpack.c); half of this
# leaves room for the headers of entries.
cdef Py_ssize_t LISTPACK_BYTES = 1 << 29
# Up to 7.0, only larger elements have a node of their own. Source: quicklist.c, packed_threshold.
cdef Py_ssize_t OLD_LARGE_BYTES = 1 << 30

cdef bint fit_listpack(const Value *v, int first, int step, long long most) noexcept nogil:
    """Return whether every server accepts the strings of a value in a listpack.

    If not, the value is written in the plain format, and the server chooses the encoding.

    Args:
        v: the strings are every ``step``th word, starting at ``first``.
        most: the largest allowed string, in bytes.
    """
    cdef Py_ssize_t i = first, total = 0
    while i < v.size:
        if v.words[i].size > most or is_disputed(v.words[i].size):
            return False
        total += v.words[i].size
        i += step
    return total <= LISTPACK_BYTES


cdef class ValueWriter:
    """Writes values in the format of a server."""

    def __cinit__(self, Format format not None):
        self.format = format
        self.unique = UniqueNames()

    def __dealloc__(self):
        free(self.ranked)
        free(self.nodes)

    cdef int put(self, Buffer b, Value *value, const Word *key) except -1:
        """Write the type of a value, the key (unless ``key`` is NULL) and the value.

        The words are reordered, and words that the server would not keep are left out.
        """
        if value.kind == HASH:
            return put_hash(self, b, value, key)
        if value.kind == SET:
            return put_set(self, b, value, key)
        if value.kind == SORTED_SET:
            return put_sorted_set(self, b, value, key)
        if value.kind == STRING:
            put_type(b, PLAIN_STRING, key)
            return put_word(b, &value.words[value.size - 1])
        return put_list(self, b, value, key)


cdef int put_hash(ValueWriter writer, Buffer b, Value *v, const Word *key) except -1:
    cdef Format f = writer.format
    cdef Py_ssize_t i, start, size
    cdef bint small = f.listpacks and fit_listpack(v, 0, 1, f.hash_value)
    if f.newer and v.size > 2 * f.hash_entries:
        small = small and max_per_command(v) <= 2 * f.hash_entries
    size = writer.unique.keep(v.words, v.size, 2, 0)
    if small and size <= 2 * f.hash_entries:
        put_type(b, HASH_LISTPACK, key)
        start = begin_length(b)
        begin_listpack(b)
        for i in range(size):
            put_item(b, &v.words[i])
        return end_listpack(b, start, size)
    put_type(b, PLAIN_HASH, key)
    put_size(b, size // 2)
    for i in range(size):
        put_word(b, &v.words[i])
    return 0


cdef int put_set(ValueWriter writer, Buffer b, Value *v, const Word *key) except -1:
    cdef Format f = writer.format
    cdef Py_ssize_t i, start, most, integers = 0
    cdef int64_t number
    cdef bint small = not f.newer or has_small_commands(writer, v)
    v.size = writer.unique.keep(v.words, v.size, 1, 0)
    most = v.size if begins_as_integers(writer, v) else 0
    while integers < most and read_integer(
        v.words[integers].text, v.words[integers].size, &number
    ):
        integers += 1
    if integers == v.size and integers <= f.set_integers and small:
        return put_integers(writer, b, v, key)
    # ``integers`` is the number of leading members that the server first stores as integers.
    if (
        f.newer and small and integers < v.size <= f.set_entries and integers <= f.set_integers
        and fit_listpack(v, 0, 1, f.set_value)
    ):
        sort_integers(writer, v, integers)
        put_type(b, SET_LISTPACK, key)
        start = begin_length(b)
        begin_listpack(b)
        for i in range(v.size):
            put_item(b, &v.words[i])
        return end_listpack(b, start, v.size)
    put_type(b, PLAIN_SET, key)
    put_size(b, v.size)
    for i in range(v.size):
        put_word(b, &v.words[i])
    return 0


cdef bint has_small_commands(ValueWriter writer, const Value *v) noexcept:
    """Return whether each command that builds the set stays within the server's limit of members.

    Source: setTypeCreate() and setTypeMaybeConvert() in t_set.c.
    """
    cdef Format f = writer.format
    cdef Py_ssize_t i, most, first = 0, texts = 0
    cdef int64_t number
    cdef bint integers
    if v.size <= min(f.set_entries, f.set_integers):
        return True
    most = v.size if begins_as_integers(writer, v) else 0
    while texts < most and read_integer(v.words[texts].text, v.words[texts].size, &number):
        texts += 1
    for i in range(v.commands):
        integers = first <= texts if first else texts > 0
        if v.ends[i] - first > (f.set_integers if integers else f.set_entries):
            return False
        first = v.ends[i]
    return True


cdef bint begins_as_integers(ValueWriter writer, const Value *v) noexcept:
    """Return whether a server starts this set as a set of integers.

    Servers up to 7.0 always do so; later servers do so only if the first command is small.
    """
    return not writer.format.newer or v.ends[0] <= writer.format.set_integers


cdef int sort_integers(ValueWriter writer, Value *v, Py_ssize_t count) except -1:
    """Sort the first ``count`` members, which are integers."""
    cdef Py_ssize_t i
    cdef int64_t number = 0
    reserve_ranked(writer, count)
    for i in range(count):
        read_integer(v.words[i].text, v.words[i].size, &number)
        writer.ranked[i].integer = number
        writer.ranked[i].text, writer.ranked[i].size = v.words[i].text, v.words[i].size
    rank_integers(writer.ranked, count)
    for i in range(count):
        v.words[i].text, v.words[i].size = writer.ranked[i].text, writer.ranked[i].size
    return 0


cdef int put_integers(ValueWriter writer, Buffer b, Value *v, const Word *key) except -1:
    """Write a set of integers: their width, their number, and the sorted integers."""
    cdef Py_ssize_t i, start
    cdef char *p
    cdef uint32_t width = 2, count = <uint32_t>v.size
    sort_integers(writer, v, v.size)
    for i in (0, v.size - 1):
        if not -32768 <= writer.ranked[i].integer < 32768:
            width = max(width, 4)
        if not -2147483648 <= writer.ranked[i].integer < 2147483648:
            width = 8
    put_type(b, INTEGER_SET, key)
    start = begin_length(b)
    p = make_room(b, 8 + 8 * v.size)
    memcpy(p, &width, 4)
    memcpy(p + 4, &count, 4)
    p += 8
    for i in range(v.size):
        memcpy(p, &writer.ranked[i].integer, width)
        p += width
    b.out.p = p
    return end_length(b, start)


cdef int put_sorted_set(ValueWriter writer, Buffer b, Value *v, const Word *key) except -1:
    cdef Format f = writer.format
    cdef Py_ssize_t i, count
    cdef bint small = f.listpacks and fit_listpack(v, 1, 2, f.zset_value)
    cdef char *p
    if f.newer and v.size > 2 * f.zset_entries:
        small = small and max_per_command(v) <= 2 * f.zset_entries
    count = writer.unique.keep(v.words, v.size, 2, 1) // 2
    rank(writer, v, count)
    if small and count <= f.zset_entries:
        return put_ranked_listpack(writer, b, count, key)
    put_type(b, BINARY_SORTED_SET, key)
    put_size(b, count)
    # Write from the highest score down, as servers do: loading then inserts at the head.
    for i in range(count - 1, -1, -1):
        p = make_room(b, writer.ranked[i].size + ENTRY_ROOM + 8)
        p = put_text(p, writer.ranked[i].text, writer.ranked[i].size)
        memcpy(p, &writer.ranked[i].score, 8)
        b.out.p = p + 8
    return 0


cdef int rank(ValueWriter writer, const Value *v, Py_ssize_t count) except -1:
    """Store the members, sorted by score, in ``ranked``."""
    cdef Py_ssize_t i
    reserve_ranked(writer, count)
    for i in range(count):
        writer.ranked[i].score = read_score(v.words[2 * i].text, v.words[2 * i].size)
        writer.ranked[i].text = v.words[2 * i + 1].text
        writer.ranked[i].size = v.words[2 * i + 1].size
    rank_members(writer.ranked, count)
    return 0


cdef int put_ranked_listpack(
    ValueWriter writer, Buffer b, Py_ssize_t count, const Word *key
) except -1:
    cdef Py_ssize_t i, start, size
    cdef char[64] text
    cdef char *p
    put_type(b, SORTED_SET_LISTPACK, key)
    start = begin_length(b)
    begin_listpack(b)
    for i in range(count):
        size = score_text(writer.ranked[i].score, writer.format.newer, text)
        p = make_room(b, writer.ranked[i].size + size + 2 * ENTRY_ROOM)
        p = put_entry(p, writer.ranked[i].text, writer.ranked[i].size)
        b.out.p = put_entry(p, text, size)
    return end_listpack(b, start, 2 * count)


cdef int put_list(ValueWriter writer, Buffer b, const Value *v, const Word *key) except -1:
    cdef Py_ssize_t i
    cdef bint nodes = writer.format.listpacks
    for i in range(v.size):
        if is_disputed(v.words[i].size) and not is_large(writer, v.words[i].size):
            nodes = False
    if nodes:
        return put_nodes(writer, b, v, key)
    put_type(b, PLAIN_LIST, key)
    put_size(b, v.size)
    for i in range(v.size):
        put_word(b, &v.words[v.size - 1 - i if v.kind == LIST_FROM_HEAD else i])
    return 0


cdef int put_nodes(ValueWriter writer, Buffer b, const Value *v, const Word *key) except -1:
    """Write a list as nodes, divided as the server would divide the list."""
    cdef Py_ssize_t i, start, first = 0, nodes = 0, at = 0
    cdef ListNode *node
    cdef bint reverse = v.kind == LIST_FROM_HEAD
    while first < v.size:
        if nodes == writer.nodes_room:
            writer.nodes = <ListNode *>resize(writer.nodes, (2 * nodes + 2) * sizeof(ListNode))
            writer.nodes_room = 2 * nodes + 2
        node = &writer.nodes[nodes]
        node.first = first
        first = node.end = node_end(writer, v, first, &node.plain)
        nodes += 1
    put_type(b, LIST_OF_NODES, key)
    put_size(b, nodes)
    for at in range(nodes):
        node = &writer.nodes[nodes - 1 - at if reverse else at]
        put_size(b, PLAIN_NODE if node.plain else LISTPACK_NODE)
        if node.plain:
            put_word(b, &v.words[node.first])
            continue
        start = begin_length(b)
        begin_listpack(b)
        for i in range(node.end - node.first):
            put_item(b, &v.words[node.end - 1 - i if reverse else node.first + i])
        end_listpack(b, start, node.end - node.first)
    return 0


cdef Py_ssize_t node_end(
    ValueWriter writer, const Value *v, Py_ssize_t first, bint *plain
) noexcept:
    """Return the index after the last element of the node that begins with ``first``.

    Args:
        plain: receives whether the node is one element without a listpack.
    """
    cdef Format f = writer.format
    cdef Py_ssize_t i = first, size = LISTPACK_HEADER + 1, command = 0, at, added
    plain[0] = is_large(writer, v.words[first].size)
    if plain[0]:
        return first + 1
    if f.newer and first == 0:
        # A new list is one listpack until the arguments of a command exceed the listpack.
        while command < v.commands:
            added = 0
            for at in range(i, v.ends[command]):
                added += v.words[at].size
            if size + added > f.list_bytes or v.ends[command] > f.list_entries:
                break
            while i < v.ends[command]:
                size += entry_size(v.words[i].text, v.words[i].size)
                i += 1
            command += 1
    while i < v.size and not is_large(writer, v.words[i].size) and (
        i == first
        or (size + v.words[i].size + NODE_OVERHEAD <= f.list_bytes
            and i - first < f.list_entries)
    ):
        size += entry_size(v.words[i].text, v.words[i].size)
        i += 1
    return i


cdef bint is_large(ValueWriter writer, Py_ssize_t size) noexcept:
    """Return whether an element gets its own node, without a listpack."""
    return size > writer.format.list_bytes if writer.format.newer else size >= OLD_LARGE_BYTES


cdef Py_ssize_t max_per_command(const Value *v) noexcept:
    """Return the largest number of words that one command adds."""
    cdef Py_ssize_t i, before = 0, most = 0
    for i in range(v.commands):
        most = max(most, v.ends[i] - before)
        before = v.ends[i]
    return most


cdef int reserve_ranked(ValueWriter writer, Py_ssize_t count) except -1:
    if count > writer.ranked_room:
        writer.ranked = <Ranked *>resize(writer.ranked, count * sizeof(Ranked))
        writer.ranked_room = count
    return 0


cdef enum:
    # The maximum number of digits of a time to live, in seconds or milliseconds: the server must be
    # able to add the current time.
    TIME_DIGITS = 14


cdef str shown(const Word *word):
    """Return an argument as it is shown in messages."""
    return shown_argument(word.text[:word.size])


cdef int verb_of(const Word *name) noexcept nogil:
    """Return the kind of value that a command creates, or EXPIRE, PEXPIRE or OTHER."""
    cdef const char *text = name.text
    if name.size == 4:
        if is_word(text, 4, b"HSET"):
            return HASH
        if is_word(text, 4, b"SADD"):
            return SET
        if is_word(text, 4, b"ZADD"):
            return SORTED_SET
    elif name.size == 5:
        if is_word(text, 5, b"RPUSH"):
            return LIST
        if is_word(text, 5, b"LPUSH"):
            return LIST_FROM_HEAD
        if is_word(text, 5, b"HMSET"):
            return HASH
    elif name.size == 6 and is_word(text, 6, b"EXPIRE"):
        return EXPIRE
    elif name.size == 7 and is_word(text, 7, b"PEXPIRE"):
        return PEXPIRE
    elif name.size == 3 and is_word(text, 3, b"SET"):
        return STRING
    return OTHER


cdef void read_value_command(ValueCommand *command, const char *p, const char *end) noexcept nogil:
    """Parse the command from ``p`` to ``end``."""
    cdef long long words, size
    p = known_length_end(p + 1, &words)
    command.end = end
    command.name.text = next_word(&p, &size)
    command.name.size = size
    command.verb = verb_of(&command.name) if words >= 2 else OTHER
    command.key.text = NULL
    command.key.size = 0
    if words >= 2:
        command.key.text = next_word(&p, &size)
        command.key.size = size
    command.items = p
    command.words = words - 2


cdef str why_invalid(const ValueCommand *command):
    """Return why a command that creates a value can't be serialised; None if it can."""
    cdef const char *p = command.items
    cdef const char *text
    cdef long long size
    cdef Py_ssize_t _
    cdef bint pairs = command.verb == HASH or command.verb == SORTED_SET
    if command.words < 1 + pairs or (pairs and command.words % 2):
        noun = "argument" if command.words == 1 else "arguments"
        return f"{shown(&command.name)} has {command.words} {noun} after the key"
    if command.verb == SORTED_SET:
        for _ in range(0, command.words, 2):
            text = next_word(&p, &size)
            if not is_score(text, text + size):
                score = shown_argument(text[:size])
                return f"{score} is not a plain decimal number, which a score must be here"
            next_word(&p, &size)
    return None


cdef long long read_time(const char *text, Py_ssize_t size) noexcept nogil:
    """Parse a time to live; return -1 unless it is a plain number above 0."""
    cdef long long n = 0
    cdef Py_ssize_t i
    if not 0 < size <= TIME_DIGITS or digits_end(text, text + size) != text + size:
        return -1
    for i in range(size):
        n = n * 10 + (text[i] - c'0')
    return n if n else -1


cdef long long time_of(const ValueCommand *command) noexcept nogil:
    """Return the time to live that EXPIRE or PEXPIRE sets, in ms; -1 if the time is invalid."""
    cdef const char *p = command.items
    cdef const char *text
    cdef long long size, n = -1
    if command.words == 1:
        text = next_word(&p, &size)
        n = read_time(text, size)
    return n * 1000 if n > 0 and command.verb == EXPIRE else n


cdef long long time_of_set(const ValueCommand *command, const char *p) noexcept nogil:
    """Return the time to live in ms from SET's option EX or PX at p; -1 for an invalid time."""
    cdef long long size, n = -1
    cdef const char *unit = next_word(&p, &size)
    cdef bint seconds = size == 2 and is_word(unit, 2, b"EX")
    cdef const char *text
    if command.words == 3 and (seconds or (size == 2 and is_word(unit, 2, b"PX"))):
        text = next_word(&p, &size)
        n = read_time(text, size)
    return n * 1000 if n > 0 and seconds else n
