cdef double read_score(const char *text, Py_ssize_t size) except? -1
cdef Py_ssize_t score_text(double score, bint shortest, char *text) except -1
