# cython: language_level=3, auto_pickle=False
"""Work that signal handlers must not interrupt: reading a socket, and blocks of Python code."""

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.errno cimport EAGAIN, EINTR, errno
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from threading import get_ident, main_thread

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

# Less than 128 KiB: for that size or more, malloc maps fresh pages for each read.
READ_BYTES = 1 << 16
cdef Py_ssize_t MAX_BYTES = READ_BYTES
# Waking a sleeping process takes 100 us on a virtual machine, about as long as a server needs to
# pop 1,000 items. So poll for this long before sleeping, and yield the CPU between polls.
cdef long long AWAKE_NS = 200_000
cdef int NAP_MS = 500


def receive(int fd, sink, Py_ssize_t reads, int milliseconds=0, bint soon=False):
    """Feed received bytes to a sink.

    If ``milliseconds`` is 0, feed all available bytes. Otherwise wait for input, and go on while
    a reply is incomplete. No signal handler runs between reading and feeding, so a Ctrl-C loses no
    bytes.

    Args:
        fd: the socket.
        sink: ``feed()`` accepts bytes; ``pending`` is whether the bytes so far end inside a reply.
            Both must be compiled, not written in Python.
        reads: maximum number of reads.
        milliseconds: maximum wait before each read; 0 for no wait. An exception of a signal handler
            ends the wait.
        soon: whether input is likely to arrive soon; if so, the first wait polls before sleeping.

    Returns:
        The value for ``soon`` in the next call: whether this input arrived soon.

    Raises:
        EOFError: the other side has closed the connection.
        OSError: the connection is lost.
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
    """Wait for input; return whether it arrived before a signal and within ``milliseconds``."""
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
        PyErr_CheckSignals()            # an earlier signal would not end the sleep
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
    """Read up to MAX_BYTES without waiting; None if no bytes have arrived."""
    cdef PyObject *data = PyBytes_FromStringAndSize(NULL, MAX_BYTES)
    cdef char *memory = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = -1
    try:
        while size < 0:
            with nogil:
                size = recv(fd, memory, MAX_BYTES, MSG_DONTWAIT)
            if size < 0 and errno == EAGAIN:
                return None
            if size < 0:
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        if size < MAX_BYTES:
            _PyBytes_Resize(&data, size)
        return <bytes>data
    finally:
        Py_XDECREF(data)


cdef extern from *:
    """
    #include <signal.h>
    #include <string.h>
    /* Signals whose Python handlers may raise: Ctrl-C, kill, a closed terminal, a timer. */
    static const int fastresp_numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};
    #define FASTRESP_SIGNALS 4
    static volatile sig_atomic_t fastresp_came[FASTRESP_SIGNALS];

    static void fastresp_note(int number) {
        for (int i = 0; i < FASTRESP_SIGNALS; i++)
            if (fastresp_numbers[i] == number)
                fastresp_came[i] = 1;
    }

    static void fastresp_hold(struct sigaction *former) {
        struct sigaction noting;
        memset(&noting, 0, sizeof noting);
        noting.sa_handler = fastresp_note;
        noting.sa_flags = SA_RESTART | SA_ONSTACK;
        for (int i = 0; i < FASTRESP_SIGNALS; i++)
            sigaction(fastresp_numbers[i], &noting, &former[i]);
    }

    static void fastresp_release(const struct sigaction *former) {
        for (int i = 0; i < FASTRESP_SIGNALS; i++)
            sigaction(fastresp_numbers[i], &former[i], NULL);
        for (int i = 0; i < FASTRESP_SIGNALS; i++)
            if (fastresp_came[i]) {
                fastresp_came[i] = 0;
                raise(fastresp_numbers[i]);
            }
    }
    """
    ctypedef struct sigaction_t "struct sigaction":
        pass
    enum: FASTRESP_SIGNALS
    void hold "fastresp_hold"(sigaction_t *former) noexcept nogil
    void release "fastresp_release"(const sigaction_t *former) noexcept nogil


cdef class Undisturbed:
    """Context manager that delays Ctrl-C, SIGTERM, SIGHUP and SIGALRM until its end.

    Python runs signal handlers only in the main thread, so this does nothing in other threads.
    Blocking the signals in the main thread would not help: the kernel would deliver them to
    another thread, and Python would still raise in the main thread. So signals are only recorded
    here, and raised again at the end. A signal that the kernel has just delivered to another thread
    can still interrupt the block. This can't be Ctrl-C, which is delivered to the main thread.

    Attributes:
        holding: whether signals are being delayed.
    """

    cdef sigaction_t former[FASTRESP_SIGNALS]
    cdef readonly bint holding
    cdef object came_before

    def __enter__(self):
        if self.holding or get_ident() != main_thread().ident:
            return
        hold(self.former)
        self.holding = True
        try:
            PyErr_CheckSignals()        # earlier signals must not raise inside the block either
        except BaseException as error:
            self.came_before = error

    def __exit__(self, *error):
        if self.holding:
            self.holding = False
            release(self.former)
        if self.came_before is not None:
            before, self.came_before = self.came_before, None
            raise before
        PyErr_CheckSignals()            # signals that arrived inside the block
