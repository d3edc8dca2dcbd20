# cython: language_level=3, cdivision=True
"""Gather items into lists, each for one variadic command."""

from cpython.bytes cimport PyBytes_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact

from time import monotonic

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    Py_ssize_t PyBytes_GET_SIZE(object)
    Py_ssize_t PyObject_LengthHint(object, Py_ssize_t) except -1

# Maximum items between two reads of the clock, each of which costs as much as a few items.
cdef Py_ssize_t CLOCK_ITEMS = 64


def gather(source, list batch, Py_ssize_t max_items, Py_ssize_t max_bytes, double seconds):
    """Append items of an iterator to a list until a limit or the deadline is reached.

    Args:
        source: an iterator of items.
        batch: the list to append to; it need not be empty.
        max_items: stop after this many items.
        max_bytes: stop after the item that reaches this many bytes. A str counts its characters,
            any other item its ``len()``, or 32 if it has no length.
        seconds: stop after the first item that arrives this many seconds after the call.

    Returns:
        False if the iterator is exhausted; True if it may have more items.
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
        if count >= max_items or size >= max_bytes:
            return True
        if count >= until:
            now = monotonic()
            if now >= deadline:
                return True
            # For a slow source, read the clock after each item.
            step = 1 if (now - last) * 4 > seconds else min(2 * step, CLOCK_ITEMS)
            last = now
            until = count + step
    return False
