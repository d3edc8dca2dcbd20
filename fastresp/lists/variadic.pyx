# cython: language_level=3, cdivision=True
"""Items gathered into lists, each for one variadic command."""

from cpython.bytes cimport PyBytes_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact

from time import monotonic

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    Py_ssize_t PyBytes_GET_SIZE(object)
    Py_ssize_t PyObject_LengthHint(object, Py_ssize_t) except -1

# A look at the clock costs as much as some items: at most so many pass between two.
cdef Py_ssize_t CLOCK_ITEMS = 64


def gather(source, list batch, Py_ssize_t most_items, Py_ssize_t most_bytes, double seconds):
    """Append items of an iterator to a list until there are enough, or the time is up.

    Args:
        source: an iterator.
        batch: a list, which may have a beginning: the name of a command and its key.
        most_items: end after so many.
        most_bytes: end with the item that reaches so many bytes of str (in characters) and bytes;
            others by their len(), or as 32 if they have none.
        seconds: end with the item that comes so long after the beginning.

    Returns:
        Whether there may be more.
    """
    cdef Py_ssize_t count = 0, size = 0, until = 1, step = 1
    cdef double now, last = monotonic()
    cdef double deadline = last + seconds
    for item in source:
        batch.append(item)
        count += 1
        if PyBytes_CheckExact(item):
            size += PyBytes_GET_SIZE(item)
        elif PyUnicode_CheckExact(item):
            size += PyUnicode_GET_LENGTH(item)
        else:
            size += PyObject_LengthHint(item, 32)
        if count >= most_items or size >= most_bytes:
            return True
        if count >= until:
            now = monotonic()
            if now >= deadline:
                return True
            # Items that come slowly are looked at one by one.
            step = 1 if (now - last) * 4 > seconds else min(2 * step, CLOCK_ITEMS)
            last = now
            until = count + step
    return False
