# cython: language_level=3, cdivision=True
"""The commands for one lane that are not in a chunk yet."""

from cpython.array cimport clone, resize

from .buffer cimport make_room
from .out cimport full_size

cdef array LONGLONGS = array("q")

cdef enum:
    # Room after the commands for the headers of large arguments; headers are always copied.
    BEHIND = 64


cdef class Share:
    """The commands for one lane that are not in a chunk yet."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.out = Buffer(start_capacity)

    cdef int reserve(self, Part *part, bint plain) except -1:
        """Make room for the commands counted in a part, and set the part's pointers."""
        cdef Buffer out = self.out
        while out.room < out.commands + part.commands:
            out.grow_marks()
        if not plain:
            self.widen()
            part.places = self.places.data.as_longlongs
            part.done = self.done.data.as_longlongs
        part.p = make_room(out, part.size + BEHIND)
        part.limit, part.room = out.out.end - BEHIND, out.room
        part.ends, part.rows = out.ends.data.as_longlongs, out.rows.data.as_longlongs
        part.at, part.end, part.covered = out.commands, full_size(&out.out), self.rows
        part.base = part.p - part.end
        return 0

    cdef int widen(self) except -1:
        """Extend ``places`` and ``done`` to the capacity of ``ends`` and ``rows``."""
        cdef Py_ssize_t room = self.out.room, i
        if self.places is None:
            done = clone(LONGLONGS, room, False)
            self.places = clone(LONGLONGS, room, False)
            self.done = done
            for i in range(self.out.commands):      # each row so far made one command
                self.places.data.as_longlongs[i] = self.out.rows.data.as_longlongs[i]
                self.done.data.as_longlongs[i] = i + 1
        if len(self.places) < room:
            resize(self.places, room)
        if len(self.done) < room:
            resize(self.done, room)
        return 0

    cdef void accept(self, const Part *part) noexcept:
        """Add the commands that were written with a part's pointers."""
        self.out.out.p = part.p
        self.out.commands = part.at
        self.rows = part.covered

    cdef Chunk take(self):
        """Return a chunk of the commands, and empty the share."""
        cdef Py_ssize_t count = self.out.commands
        cdef Chunk chunk = self.out.take()
        chunk.places = chunk.rows
        if self.places is not None:
            resize(self.places, count)
            resize(self.done, count)
            chunk.places, chunk.done = self.places, self.done
        self.places = self.done = None
        self.rows = 0
        return chunk
