# cython: language_level=3, auto_pickle=False
"""Delay signals during work that an exception of a handler must not interrupt."""

from cpython.exc cimport PyErr_CheckSignals

from threading import get_ident, main_thread

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
    can still interrupt; the kernel delivers Ctrl-C to the main thread.

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

    @property
    def lifted(self):
        """Context manager to use inside Undisturbed, in which signals are delivered immediately.

        Afterwards, signals are delayed again, unless the block ends with an exception.
        """
        return Lifted(self)


cdef class Lifted:
    cdef Undisturbed around
    cdef bint was_holding

    def __init__(self, Undisturbed around):
        self.around = around

    def __enter__(self):
        self.was_holding = self.around.holding
        self.around.__exit__()

    def __exit__(self, kind, *error):
        if self.was_holding and kind is None:
            self.around.__enter__()
