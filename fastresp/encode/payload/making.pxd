from .pieces cimport Word

# Verbs that create no value; the verb of any other command is the kind of its value.
cdef enum:
    OTHER = -1
    EXPIRE = 8
    PEXPIRE = 9


# A command that creates a value, or sets its time to live.
cdef struct ValueCommand:
    int verb
    Word name
    Word key
    const char *items
    const char *end
    Py_ssize_t words                    # number of arguments after the key


cdef void read_value_command(ValueCommand *m, const char *p, const char *end) noexcept nogil
cdef str why_refused(const ValueCommand *m)
cdef long long time_of(const ValueCommand *m) noexcept nogil
cdef long long time_of_set(const ValueCommand *m, const char *p) noexcept nogil
cdef str shown(const Word *word)
