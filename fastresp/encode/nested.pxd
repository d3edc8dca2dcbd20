# The types that {**!json} encodes as JSON.
cdef tuple NESTED

cdef str as_json(object value, object default)
