# cython: language_level=3
"""What has come over a plain socket: waited for, taken and fed on in one call."""

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.errno cimport EAGAIN, EINTR, errno
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    enum: POLLIN
    int poll(pollfd *ready, unsigned long count, int milliseconds)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT
    Py_ssize_t recv(int fd, void *memory, size_t size, int flags)

cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    char *PyBytes_AS_STRING(PyObject *data)
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1

# Below 128 KiB, from where malloc would fetch fresh pages for each read.
READ_BYTES = 1 << 16
cdef Py_ssize_t MOST_BYTES = READ_BYTES
# To wake a process that sleeps takes 100 us on a virtual machine, about as long as a server works
# on a pop of 1,000 items. So we stay awake for that long, and let others have the core.
cdef long long AWAKE_NS = 200_000
cdef int NAP_MS = 500


def receive(int fd, sink, Py_ssize_t reads, int milliseconds=0, bint soon=False):
    """Feed a sink on what has come: on all there is, or, where it waits, until nothing is pending.

    No handler of a signal runs between taking and feeding: a Ctrl-C loses nothing.

    Args:
        fd: the socket.
        sink: its ``feed()`` takes bytes; ``pending`` says whether they ended in the midst of
            something. Neither may be Python's.
        reads: how many there may be.
        milliseconds: wait so long for something, and again while it is pending; 0 for not at all.
            What the handler of a signal raises ends it.
        soon: what it waits for is likely to come soon: do not sleep at once.

    Returns:
        Whether what it waited for came soon, so that the next may, too. It may not over a network.

    Raises:
        EOFError: the other side has closed the connection.
        OSError: it is lost.
    """
    cdef bint more = True
    while more and reads > 0:
        if milliseconds > 0 and not wait(fd, milliseconds, &soon):
            break
        data = take(fd)
        if data is None:
            break
        if not data:
            raise EOFError("the server closed the connection")
        sink.feed(data)
        more = milliseconds == 0 or sink.pending
        reads -= 1
    return soon


cdef bint wait(int fd, int milliseconds, bint *soon) except -1:
    """Whether something comes within this time, and before a signal."""
    cdef pollfd ready
    cdef int nap, count = 0
    cdef long long start = nanoseconds(), now = start
    ready.fd, ready.events = fd, POLLIN
    if soon[0]:
        with nogil:
            while count == 0 and now - start < AWAKE_NS:
                count = poll(&ready, 1, 0)
                if count == 0:
                    sched_yield()
                now = nanoseconds()
    while count == 0 and milliseconds > 0:
        PyErr_CheckSignals()            # one that came before it does not end a sleep
        nap = min(milliseconds, NAP_MS)
        milliseconds -= nap
        with nogil:
            count = poll(&ready, 1, nap)
            now = nanoseconds()
    soon[0] = now - start < 2 * AWAKE_NS
    if count < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
    return count > 0


cdef long long nanoseconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1_000_000_000LL + now.tv_nsec


cdef bytes take(int fd):
    """What there is, at most MOST_BYTES; None where there is nothing."""
    cdef PyObject *data = PyBytes_FromStringAndSize(NULL, MOST_BYTES)
    cdef char *memory = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = -1
    try:
        while size < 0:
            with nogil:
                size = recv(fd, memory, MOST_BYTES, MSG_DONTWAIT)
            if size < 0 and errno == EAGAIN:
                return None
            if size < 0:
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        if size < MOST_BYTES:
            _PyBytes_Resize(&data, size)
        return <bytes>data
    finally:
        Py_XDECREF(data)
