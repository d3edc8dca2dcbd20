from .buffer cimport Buffer


# Returns the number of bytes per item for "f16", "f32" and "f64"; 0 for any other conversion.
cdef int width_of(object conversion) except -1
cdef str other_length(Py_ssize_t first)
# length: the number of items of the last vector written for the placeholder; -1 before the first
# vector.
cdef int put_vector(Buffer b, object value, int width, Py_ssize_t *length) except -1
