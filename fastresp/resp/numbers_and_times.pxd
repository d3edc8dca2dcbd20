from .buffer cimport Buffer


# Each function writes at p, which needs room for 32 bytes, and returns the end of the written text.
cdef char *put_double(char *p, double v) noexcept nogil
cdef char *put_single(char *p, float v) noexcept nogil
cdef char *put_half(char *p, unsigned short bits) noexcept nogil

cdef unsigned short half_of(double v) noexcept nogil
cdef double half_value(unsigned short bits) noexcept nogil

# Each function writes at p and returns the end of the written text, or NULL for a date outside the
# years 1 to 9999 or a time outside a day. All except put_decimal need room for 40 bytes.
# per_second is the number of units in a second: 1, 1_000, 1_000_000 or 1_000_000_000.
cdef char *put_date(char *p, long long days) noexcept nogil
cdef char *put_time(char *p, long long value, long long per_second) noexcept nogil
cdef char *put_timestamp(char *p, long long value, long long per_second) noexcept nogil
cdef char *put_offset(char *p, int seconds) noexcept nogil
cdef char *put_duration(char *p, long long value, long long per_second) noexcept nogil
cdef char *put_days(
    char *p, bint negative, unsigned long long days, int seconds, int nanoseconds
) noexcept nogil
# Needs room for 90 + abs(scale) bytes.
cdef char *put_decimal(
    char *p, const unsigned long long *words, int nwords, int scale
) noexcept nogil

# Returns the number of bytes per item for "f16", "f32" and "f64"; 0 for any other conversion.
cdef int width_of(object conversion) except -1
cdef str other_length(Py_ssize_t first)
# length: the number of items of the last vector written for the placeholder; -1 before the first
# vector.
cdef int put_vector(Buffer b, object value, int width, Py_ssize_t *length) except -1
