from cpython.list cimport PyList_Check, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from ..resp.values cimport Nulls

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object, object) except? NULL


cdef class Field:
    cdef readonly str name              # None for a field given by position
    cdef readonly Py_ssize_t position   # -1 for a field given by name
    cdef readonly str convert           # "json", "f16", "f32", "f64" or None
    cdef readonly Py_ssize_t at         # offset in the template's text
    cdef readonly Field head            # the first field of a path; None for any other field
    cdef readonly tuple path            # the names of a path; for any other field, its name


cdef class Items(Field):
    pass


cdef class Pairs(Field):
    cdef readonly tuple left_out        # the Fields to leave out


cdef class Absent(Pairs):
    pass


cdef class Row(Field):
    pass


# How to access the fields of a row.
cdef enum RowKind:
    ROW_DICT        # an exact dict
    ROW_MAPPING     # other objects with keys(): by item
    ROW_SEQUENCE    # tuples, lists and similar: by position; named fields by attribute or item
    ROW_VALUE       # a str or number: field 0 is the row itself
    ROW_OBJECT      # other objects: by attribute; field 0 is the row itself


cdef class FieldReader:
    cdef readonly str text
    cdef object row_type                # the type of the last row
    cdef int row_kind                   # the RowKind of this type
    cdef tuple row_names                # the names of the row's fields; None if they have no names
    cdef bint by_item                   # whether named fields are accessed by item

    cdef int classify(self, object row) except -1
    cdef object look_up(self, Field field, object row, Nulls nulls)
    cdef object find(self, Field field, object row, Field placeholder)
    cdef object within(self, Field field, object holder, Py_ssize_t depth)
    cdef object names(self, Field field, object row)
    cdef dict as_dict(self, Field field, object row)
    cdef object missing(self, Field field, object row, bint left_out=*)
    cdef object missing_within(self, Field field, object holder, Py_ssize_t depth)


cdef inline PyObject *peek(int row_kind, PyObject *name, Py_ssize_t i, object row) except? NULL:
    """Return a borrowed reference to a field's value if possible, otherwise NULL."""
    if i < 0:
        return PyDict_GetItemWithError(row, <object>name) if row_kind == ROW_DICT else NULL
    if PyTuple_Check(row):
        return PyTuple_GET_ITEM(row, i) if i < PyTuple_GET_SIZE(row) else NULL
    if PyList_Check(row):
        return PyList_GET_ITEM(row, i) if i < PyList_GET_SIZE(row) else NULL
    return NULL


cdef tuple NESTED

cdef str as_json(object value, object default)
cdef object as_milliseconds(object value)
