# Each function writes at p, which needs room for 32 bytes, and returns the end of the written text.
cdef char *put_double(char *p, double v) noexcept nogil
cdef char *put_single(char *p, float v) noexcept nogil
cdef char *put_half(char *p, unsigned short bits) noexcept nogil

cdef unsigned short half_of(double v) noexcept nogil
cdef double half_value(unsigned short bits) noexcept nogil
