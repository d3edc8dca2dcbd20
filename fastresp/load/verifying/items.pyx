# cython: language_level=3, cdivision=True
"""The expected values of a read, parsed from the commands of the source that write them."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc

from .asks cimport NUMBER, ONE, next_command, start_at
from .statement cimport LIFE, TEXT, TEXTS, next_item, read_statement

cdef enum:
    MIN_ROOM = 64


cdef class Items:
    """The items that a read covers: names and expected values, in the order of the commands.

    Args:
        again: whether differences that were found earlier are being rechecked.
    """

    def __cinit__(self, bint again):
        self.again = again

    def __dealloc__(self):
        PyMem_Free(self.items)

    cdef int start(self, Chunk chunk) except -1:
        """Move to the first command of a chunk."""
        self.chunk = chunk
        start_at(&self.cursor, chunk)
        return 0

    cdef int pass_commands(self, const Ask *ask, Watch watch) except -1:
        """Note the values that commands without reads overwrite."""
        cdef Statement s
        cdef Item item
        cdef Py_ssize_t i
        for i in range(ask.command, ask.command + ask.commands):
            self.move_to(i)
            read_statement(&s, &self.cursor.walk, &self.last, self.again)
            item.name_size, item.wanted = 0, NULL
            if s.form == LIFE:
                watch.overwrite(&s, &item)
            for _ in range(s.count):
                next_item(&s, &item)
                watch.overwrite(&s, &item)
        return 0

    cdef int move_to(self, Py_ssize_t command) except -1:
        """Move the cursor forward to a command of the chunk."""
        while self.cursor.command < command:
            next_command(&self.cursor, self.chunk)
        return 0

    cdef int fill(self, const Ask *ask) except -1:
        """Parse the items that a read covers."""
        cdef Cursor c
        cdef Statement s
        cdef Py_ssize_t i
        self.count = 0
        self.move_to(ask.command)
        c = self.cursor
        read_statement(&self.statement, &c.walk, &self.last, self.again)
        self.statement.form = ask.form
        for i in range(ask.command, ask.command + ask.commands):
            if ask.items:
                read_statement(&s, &c.walk, &self.last, self.again)
                self.add_items(&s, ask, i)
            if i + 1 < ask.command + ask.commands:
                next_command(&c, self.chunk)
        return 0

    cdef int add_items(self, Statement *s, const Ask *ask, Py_ssize_t command) except -1:
        cdef Py_ssize_t room, count = s.count
        cdef Item *items
        cdef Item item
        if ask.kind == ONE or ask.kind == NUMBER:
            for _ in range(ask.skipped):
                next_item(s, &item)
            count = 1
        if self.count + count > self.room:
            room = max(self.count + count, 2 * self.room, MIN_ROOM)
            items = <Item *>PyMem_Realloc(self.items, room * sizeof(Item))
            if items is NULL:
                raise MemoryError(f"no memory for {room:,} values")
            self.items, self.room = items, room
        for _ in range(count):
            items = &self.items[self.count]
            next_item(s, items)
            items.command = command
            if ask.form == TEXTS and s.form == TEXT:
                items.name, items.name_size = s.key, s.key_size
            self.count += 1
        return 0
