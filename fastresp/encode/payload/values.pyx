# cython: language_level=3, cdivision=True
# distutils: language = c++
# distutils: extra_compile_args = -std=c++17
"""Write values as a server stores them: in the format of DUMP and of RDB files.

The encoding is the one that the server would choose if it ran the same commands.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from ...resp.buffer cimport Buffer, make_room
from .format cimport Format
from .scores cimport read_score, score_text
from .pieces cimport (
    begin,
    begin_listpack,
    end,
    end_listpack,
    put_item,
    put_size,
    put_type,
    put_word,
)
from .strings cimport (
    ENTRY_ROOM,
    LISTPACK_HEADER,
    entry_size,
    is_disputed,
    put_entry,
    put_text,
    read_integer,
)
from .unique cimport UniqueNames, larger

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

# Types of values. Source: rdb.h.
cdef enum:
    PLAIN_STRING = 0
    PLAIN_LIST = 1
    PLAIN_SET = 2
    PLAIN_HASH = 4
    BINARY_SORTED_SET = 5
    INTEGER_SET = 11
    HASH_LISTPACK = 16
    SORTED_SET_LISTPACK = 17
    LIST_OF_NODES = 18
    SET_LISTPACK = 20

# How a node of a list stores its elements. Source: quicklist.h.
cdef enum:
    PLAIN_NODE = 1
    LISTPACK_NODE = 2
    # Bytes that a server adds to the size of an element for its header. Source: quicklist.c.
    NODE_OVERHEAD = 8

# Servers create no listpack above 1 GiB. Source: LISTPACK_MAX_SAFETY_LIMIT in listpack.c.
cdef Py_ssize_t LISTPACK_BYTES = 1 << 29
# Up to 7.0, only larger elements have a node of their own. Source: quicklist.c, packed_threshold.
cdef Py_ssize_t OLD_LARGE_BYTES = 1 << 30

cdef bint fit_listpack(const Value *v, int first, int step, long long most) noexcept nogil:
    """Return whether every server accepts the texts of a value in a listpack.

    If not, the value is written in the plain format, and the server chooses the storage.

    Args:
        v: the texts: every ``step``th word, starting at ``first``.
        most: the largest allowed text, in bytes.
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
            return self.put_hash(b, value, key)
        if value.kind == SET:
            return self.put_set(b, value, key)
        if value.kind == SORTED_SET:
            return self.put_sorted_set(b, value, key)
        if value.kind == STRING:
            put_type(b, PLAIN_STRING, key)
            return put_word(b, &value.words[value.size - 1])
        return self.put_list(b, value, key)

    cdef int put_hash(self, Buffer b, Value *v, const Word *key) except -1:
        cdef Format f = self.format
        cdef Py_ssize_t i, start, size
        cdef bint small = f.listpacks and fit_listpack(v, 0, 1, f.hash_value)
        if f.newer and v.size > 2 * f.hash_entries:
            small = small and self.max_per_command(v) <= 2 * f.hash_entries
        size = self.unique.keep(v.words, v.size, 2, 0)
        if small and size <= 2 * f.hash_entries:
            put_type(b, HASH_LISTPACK, key)
            start = begin(b)
            begin_listpack(b)
            for i in range(size):
                put_item(b, &v.words[i])
            return end_listpack(b, start, size)
        put_type(b, PLAIN_HASH, key)
        put_size(b, size // 2)
        for i in range(size):
            put_word(b, &v.words[i])
        return 0

    cdef int put_set(self, Buffer b, Value *v, const Word *key) except -1:
        cdef Format f = self.format
        cdef Py_ssize_t i, start, most, integers = 0
        cdef int64_t number
        cdef bint small = not f.newer or self.has_small_commands(v)
        v.size = self.unique.keep(v.words, v.size, 1, 0)
        most = v.size if self.begins_as_integers(v) else 0
        while integers < most and read_integer(
            v.words[integers].text, v.words[integers].size, &number
        ):
            integers += 1
        if integers == v.size and integers <= f.set_integers and small:
            return self.put_integers(b, v, key)
        if f.newer and small and self.is_listpack_set(v, integers):
            self.sort_integers(v, integers)
            put_type(b, SET_LISTPACK, key)
            start = begin(b)
            begin_listpack(b)
            for i in range(v.size):
                put_item(b, &v.words[i])
            return end_listpack(b, start, v.size)
        put_type(b, PLAIN_SET, key)
        put_size(b, v.size)
        for i in range(v.size):
            put_word(b, &v.words[i])
        return 0

    cdef bint has_small_commands(self, const Value *v) noexcept:
        """Return whether each command is small, since a server checks the size of each command.

        Source: setTypeCreate() and setTypeMaybeConvert() in t_set.c.
        """
        cdef Format f = self.format
        cdef Py_ssize_t i, most, first = 0, texts = 0
        cdef int64_t number
        cdef bint integers
        if v.size <= min(f.set_entries, f.set_integers):
            return True
        most = v.size if self.begins_as_integers(v) else 0
        while texts < most and read_integer(v.words[texts].text, v.words[texts].size, &number):
            texts += 1
        for i in range(v.commands):
            integers = first <= texts if first else texts > 0
            if v.ends[i] - first > (f.set_integers if integers else f.set_entries):
                return False
            first = v.ends[i]
        return True

    cdef bint begins_as_integers(self, const Value *v) noexcept:
        """Return whether a server starts this set as a set of integers.

        Servers up to 7.0 always do so; later servers do so only if the first command is small.
        """
        return not self.format.newer or v.ends[0] <= self.format.set_integers

    cdef bint is_listpack_set(self, const Value *v, Py_ssize_t integers) noexcept:
        """Return whether a server stores a set as a listpack; False if all members are integers.

        Args:
            v: the set, each member once.
            integers: the number of leading members that the server first stores as integers.
        """
        cdef Format f = self.format
        if v.size > f.set_entries or integers == v.size or integers > f.set_integers:
            return False
        return fit_listpack(v, 0, 1, f.set_value)

    cdef int sort_integers(self, Value *v, Py_ssize_t count) except -1:
        """Sort the first ``count`` members, which are integers."""
        cdef Py_ssize_t i
        cdef int64_t number = 0
        self.reserve_ranked(count)
        for i in range(count):
            read_integer(v.words[i].text, v.words[i].size, &number)
            self.ranked[i].integer = number
            self.ranked[i].text, self.ranked[i].size = v.words[i].text, v.words[i].size
        rank_integers(self.ranked, count)
        for i in range(count):
            v.words[i].text, v.words[i].size = self.ranked[i].text, self.ranked[i].size
        return 0

    cdef int put_integers(self, Buffer b, Value *v, const Word *key) except -1:
        """Write a set of integers: the integers' size and number, and the sorted integers."""
        cdef Py_ssize_t i, start
        cdef char *p
        cdef uint32_t width = 2, count = <uint32_t>v.size
        self.sort_integers(v, v.size)
        for i in (0, v.size - 1):
            if not -32768 <= self.ranked[i].integer < 32768:
                width = max(width, 4)
            if not -2147483648 <= self.ranked[i].integer < 2147483648:
                width = 8
        put_type(b, INTEGER_SET, key)
        start = begin(b)
        p = make_room(b, 8 + 8 * v.size)
        memcpy(p, &width, 4)
        memcpy(p + 4, &count, 4)
        p += 8
        for i in range(v.size):
            memcpy(p, &self.ranked[i].integer, width)
            p += width
        b.out.p = p
        return end(b, start)

    cdef int put_sorted_set(self, Buffer b, Value *v, const Word *key) except -1:
        cdef Format f = self.format
        cdef Py_ssize_t i, count
        cdef bint small = f.listpacks and fit_listpack(v, 1, 2, f.zset_value)
        cdef char *p
        if f.newer and v.size > 2 * f.zset_entries:
            small = small and self.max_per_command(v) <= 2 * f.zset_entries
        count = self.unique.keep(v.words, v.size, 2, 1) // 2
        self.rank(v, count)
        if small and count <= f.zset_entries:
            return self.put_ranked_listpack(b, count, key)
        put_type(b, BINARY_SORTED_SET, key)
        put_size(b, count)
        # Write from the highest score down, as servers do: loading then inserts at the head.
        for i in range(count - 1, -1, -1):
            p = make_room(b, self.ranked[i].size + ENTRY_ROOM + 8)
            p = put_text(p, self.ranked[i].text, self.ranked[i].size)
            memcpy(p, &self.ranked[i].score, 8)
            b.out.p = p + 8
        return 0

    cdef int rank(self, const Value *v, Py_ssize_t count) except -1:
        """Store the members, sorted by score, in ``ranked``."""
        cdef Py_ssize_t i
        self.reserve_ranked(count)
        for i in range(count):
            self.ranked[i].score = read_score(v.words[2 * i].text, v.words[2 * i].size)
            self.ranked[i].text = v.words[2 * i + 1].text
            self.ranked[i].size = v.words[2 * i + 1].size
        rank_members(self.ranked, count)
        return 0

    cdef int put_ranked_listpack(self, Buffer b, Py_ssize_t count, const Word *key) except -1:
        cdef Py_ssize_t i, start, size
        cdef char[64] text
        cdef char *p
        put_type(b, SORTED_SET_LISTPACK, key)
        start = begin(b)
        begin_listpack(b)
        for i in range(count):
            size = score_text(self.ranked[i].score, self.format.newer, text)
            p = make_room(b, self.ranked[i].size + size + 2 * ENTRY_ROOM)
            p = put_entry(p, self.ranked[i].text, self.ranked[i].size)
            b.out.p = put_entry(p, text, size)
        return end_listpack(b, start, 2 * count)

    cdef int put_list(self, Buffer b, const Value *v, const Word *key) except -1:
        cdef Py_ssize_t i
        cdef bint nodes = self.format.listpacks
        for i in range(v.size):
            if is_disputed(v.words[i].size) and not self.is_large(v.words[i].size):
                nodes = False
        if nodes:
            return self.put_nodes(b, v, key)
        put_type(b, PLAIN_LIST, key)
        put_size(b, v.size)
        for i in range(v.size):
            put_word(b, &v.words[v.size - 1 - i if v.kind == LIST_FROM_HEAD else i])
        return 0

    cdef int put_nodes(self, Buffer b, const Value *v, const Word *key) except -1:
        """Write a list as nodes, divided as the server would divide the list."""
        cdef Py_ssize_t i, start, first = 0, nodes = 0, at = 0
        cdef Node *node
        cdef bint reverse = v.kind == LIST_FROM_HEAD
        while first < v.size:
            self.reserve_nodes(nodes + 1)
            node = &self.nodes[nodes]
            node.first = first
            first = node.end = self.node_end(v, first, &node.plain)
            nodes += 1
        put_type(b, LIST_OF_NODES, key)
        put_size(b, nodes)
        for at in range(nodes):
            node = &self.nodes[nodes - 1 - at if reverse else at]
            put_size(b, PLAIN_NODE if node.plain else LISTPACK_NODE)
            if node.plain:
                put_word(b, &v.words[node.first])
                continue
            start = begin(b)
            begin_listpack(b)
            for i in range(node.end - node.first):
                put_item(b, &v.words[node.end - 1 - i if reverse else node.first + i])
            end_listpack(b, start, node.end - node.first)
        return 0

    cdef Py_ssize_t node_end(self, const Value *v, Py_ssize_t first, bint *plain) noexcept:
        """Return the index after the last element of the node that begins with ``first``.

        Args:
            plain: receives whether the node is one element without a listpack.
        """
        cdef Format f = self.format
        cdef Py_ssize_t i = first, size = LISTPACK_HEADER + 1, command = 0, at, added
        plain[0] = self.is_large(v.words[first].size)
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
        while i < v.size and not self.is_large(v.words[i].size) and (
            i == first
            or (size + v.words[i].size + NODE_OVERHEAD <= f.list_bytes
                and i - first < f.list_entries)
        ):
            size += entry_size(v.words[i].text, v.words[i].size)
            i += 1
        return i

    cdef bint is_large(self, Py_ssize_t size) noexcept:
        """Return whether an element gets its own node, without a listpack."""
        return size > self.format.list_bytes if self.format.newer else size >= OLD_LARGE_BYTES

    cdef Py_ssize_t max_per_command(self, const Value *v) noexcept:
        """Return the number of words in the largest command."""
        cdef Py_ssize_t i, before = 0, most = 0
        for i in range(v.commands):
            most = max(most, v.ends[i] - before)
            before = v.ends[i]
        return most

    cdef int reserve_ranked(self, Py_ssize_t count) except -1:
        if count > self.ranked_room:
            self.ranked = <Ranked *>larger(self.ranked, count * sizeof(Ranked))
            self.ranked_room = count
        return 0

    cdef int reserve_nodes(self, Py_ssize_t count) except -1:
        if count > self.nodes_room:
            self.nodes = <Node *>larger(self.nodes, 2 * count * sizeof(Node))
            self.nodes_room = 2 * count
        return 0
