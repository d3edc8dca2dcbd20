# cython: language_level=3, cdivision=True
"""Find the columns of placeholders, and convert their values as requested, such as to vectors."""

from libc.math cimport isfinite
from libc.stdint cimport uint16_t
from libc.stdlib cimport free
from libc.string cimport memset

from ...resp.numbers_and_times cimport half_of, width_of
from ...resp.buffer cimport reserve
from .arrow cimport ArrowSchema, Schema
from .arrow_types cimport (
    DOCUMENT, build, extension_name, is_fields, set_json, text_of_milliseconds, type_name,
)
from .column_view cimport (
    BAD_INDEX, IS_NULL, KIND_FLOAT, KIND_LIST, KIND_MAP, KIND_NONE, KIND_OTHER, KIND_STRUCT,
    KIND_VALUE, NO_MEMORY, NULL_INSIDE, OTHER_LENGTH, STORAGE_OTHER, TOO_LARGE, ColumnView, Storage,
    allocate, destroy, innermost, is_null, make_field, name_of, number_at, rename, resolve, span,
)
from .text cimport text_of_any, text_of_json, text_of_nested

from collections import Counter

from ...outcome.errors import TemplateError
from ...outcome.messages import joined_names, quoted_name, suggestion
from ..fields import Absent, Field, Items, Pairs, Row

# How the name of an unnamed pandas index begins: the user did not create this column.
cdef str INDEX_NAME = "__index_level_"
# Advice for a column that can't be sent.
cdef str CAST_OR_LEAVE_OUT = "cast it to text first, or leave it out"
# The initial scratch memory of a column, in bytes.
cdef Py_ssize_t SCRATCH_BYTES = 256


cdef class Columns:
    """The columns of a schema, and derived columns for placeholders with a conversion or a path.

    Args:
        plan: the template.
        schema: the names and types of the columns.
    """

    def __cinit__(self, *args):
        memset(&self.root, 0, sizeof(ColumnView))

    def __init__(self, plan, Schema schema not None):
        cdef ArrowSchema *top = &schema.schema
        cdef Py_ssize_t i
        self.kept_alive = []
        self.text = plan.text
        build(&self.root, top, self.kept_alive)
        if schema.names is not None:
            rename(&self.root, schema.names)
        set_json(&self.root)
        self.named = top.format == b"+s"
        self.columns = self.root.children if self.named else &self.root
        self.n_columns = top.n_children if self.named else 1
        if self.n_columns and extension_name(self.columns[self.n_columns - 1].schema) == DOCUMENT:
            self.n_columns -= 1
            self.document = &self.columns[self.n_columns]
        self.names = [name_of(&self.columns[i]) for i in range(self.n_columns)]
        self.unknown = schema.unknown
        self.single = schema.single and self.named
        self.indices_of = {}
        for i in range(self.n_columns):
            if self.named and is_fields(&self.columns[i]):
                self.fields, self.first_own = &self.columns[i], i + 1
                self.fields.hidden = True
                continue
            self.indices_of.setdefault(self.names[i], []).append(i)
            self.columns[i].hidden = self.names[i].startswith(INDEX_NAME)
        fields = [
            part for command in plan.commands for parts in command for part in parts
            if isinstance(part, Field)
        ]
        whole = [self.is_whole(field) for field in fields]
        self.by_row = self.named and not (fields and all(whole))
        self.conversions = allocate(sum([
            self.n_columns if isinstance(field, Pairs) else len(field.path) for field in fields
        ]))

    def __dealloc__(self):
        cdef Py_ssize_t i
        destroy(&self.root)
        for i in range(self.n_conversions):
            destroy(&self.conversions[i])
        free(self.conversions)

    cdef int bind_conversions(self) except -1:
        """Set ``may_be_null`` of each conversion for the current batch."""
        cdef Py_ssize_t i
        cdef ColumnView *column
        for i in range(self.n_conversions):
            column = &self.conversions[i]
            column.may_be_null = column.target.may_be_null
            if column.parent is not NULL and column.parent.may_be_null:
                column.may_be_null = True
        return 0

    cdef set named_by(self, arguments, field):
        """Return the indices of the columns that the command names, which {**} leaves out."""
        self.check_named(field)
        used = {
            self.index(part) for parts in arguments for part in parts
            if isinstance(part, Field) and not isinstance(part, (Pairs, Row))
        }
        for part in field.left_out:
            if isinstance(field, Absent):
                used.add(self.index(part))
                continue
            named = self.indices_of.get(part.name, [])
            if not named and self.index(part) < 0:
                raise self.missing(part)
            used.update(named or [self.index(part)])
        return used

    cdef int check_named(self, field) except -1:
        if not self.named:
            raise self.error(
                field,
                f"{{{field.key}}} needs columns with names, and this is a single column; write "
                "{0} for it",
            )
        return 0

    cdef ColumnView *values_of(self, field) except NULL:
        """Return the column with the values of the fields of JSON rows."""
        cdef ColumnView *values = &self.fields.children.children[1]
        if field.convert is not None:
            values = self.conversion_of(values, field)
            values.text = text_of_any
        return values

    cdef list distinct(self, columns, field):
        """Return the given indices without any hidden columns; refuse duplicate names."""
        visible = [i for i in columns if not self.columns[i].hidden]
        names = [self.names[i] for i in visible]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise self.error(field, f"two columns are named {twice!r}; rename one")
        return visible

    cdef ColumnView *column_of(self, field) except NULL:
        """Return the column with the values of a placeholder."""
        cdef ColumnView *column
        if isinstance(field, Row):
            if self.document is not NULL:
                return self.document
            self.check_named(field)
            for i in self.distinct(range(self.n_columns), field):
                self.check_json(self.sendable(i, field), field)
            return self.conversion_of(&self.root, field)
        column = self.find(field)
        if field.convert is None:
            return self.check(column, field)
        if field.convert == "json":
            self.check_json(column, field)
        elif field.convert == "ms":
            self.check(column, field)
        return self.conversion_of(column, field)

    cdef ColumnView *pair_of(self, Py_ssize_t i, field) except NULL:
        """Return column ``i`` for the pairs of {**}; for {**!json}, nested values become JSON."""
        cdef ColumnView *column = self.sendable(i, field)
        cdef ColumnView *conversion
        if field.convert is None or innermost(column).kind not in (
            KIND_LIST, KIND_MAP, KIND_STRUCT, KIND_VALUE
        ):
            return self.check(column, field)
        self.check_json(column, field)
        conversion = self.conversion_of(column, field)
        conversion.text = text_of_any if column.kind == KIND_VALUE else text_of_nested
        return conversion

    cdef ColumnView *conversion_of(self, ColumnView *column, field) except NULL:
        """Return a column with the values of ``column``, converted as the placeholder requires."""
        cdef ColumnView *conversion = self.new_conversion()
        conversion.target = column
        if reserve(&conversion.scratch, conversion.scratch.base, SCRATCH_BYTES) is NULL:
            raise MemoryError
        if field.convert == "json":
            conversion.text = text_of_json
        elif field.convert == "ms":
            conversion.text = text_of_milliseconds
        elif not make_vector(conversion, column, field.convert):
            raise self.error(
                field, f"{self.described(column)}, and !{field.convert} needs lists of numbers"
            )
        return conversion

    cdef ColumnView *new_conversion(self) noexcept:
        self.n_conversions += 1
        return &self.conversions[self.n_conversions - 1]

    cdef int check_json(self, ColumnView *column, field) except -1:
        """Refuse a column without a JSON form."""
        if column.json:
            return 0
        why = (
            "it is binary or contains binary, a map whose keys are lists or structs, or duplicate "
            "field names; "
        )
        if innermost(column).kind == KIND_NONE:
            why = ""
        raise self.error(
            field, f"{self.described(column)}, which has no JSON form: {why}{CAST_OR_LEAVE_OUT}"
        )

    cdef ColumnView *check(self, ColumnView *column, field) except NULL:
        """Return ``column``; refuse it if its values don't fit the placeholder."""
        cdef ColumnView *inner = innermost(column)
        cdef str name = "0" if column is &self.root else quoted_name(name_of(column))
        cdef bint nested = inner.kind in (KIND_LIST, KIND_MAP, KIND_STRUCT)
        if not isinstance(field, Items):
            if inner.text is not NULL:
                return column
            hint = CAST_OR_LEAVE_OUT
            if nested and isinstance(field, Pairs):
                hint = f"write {{**!json}} for JSON, or {{**-{name}}} to leave it out"
            elif nested:
                hint = f"write {{*{name}}} for one argument per item, or {{{name}!json}} for JSON"
            problem = f"which is not one argument: {hint}"
        elif not nested:
            problem = f"and {{*{name}}} needs a list; write {{{name}}} for a single value"
        else:
            if inner.kind == KIND_MAP:
                inner = &inner.children[0]
            if all([
                innermost(&inner.children[k]).text is not NULL for k in range(inner.n_children)
            ]):
                return column
            problem = f"whose items are not one argument each: write {{{name}!json}} for JSON"
        raise self.error(field, f"{self.described(column)}, {problem}")

    cdef ColumnView *sendable(self, Py_ssize_t i, field) except NULL:
        """Return the column at an index; refuse a column that can't be sent."""
        if self.names[i] in self.unknown:
            reason = self.unknown[self.names[i]]
            raise self.error(field, f"the column {self.names[i]!r} {reason}; {CAST_OR_LEAVE_OUT}")
        return &self.columns[i]

    cdef ColumnView *find(self, field) except NULL:
        """Return the column that a placeholder names, or the field within a column."""
        cdef Py_ssize_t depth, i = self.index(field)
        cdef ColumnView *column = &self.root
        if i >= 0:
            return self.sendable(i, field)
        if not self.is_whole(field):
            if field.head is not None:
                i = self.index(field.head)
            if i < 0:
                raise self.missing(field)
            column = self.sendable(i, field)
        for depth in range(1, len(field.path)):
            column = self.within(column, field, depth)
        return column

    cdef bint is_whole(self, field) except -1:
        """Return whether a placeholder refers to the single struct column, or to a field in it."""
        first = field if field.head is None else field.head
        return self.single and first.position == 0 and "0" not in self.indices_of

    cdef ColumnView *within(self, ColumnView *parent, field, Py_ssize_t depth) except NULL:
        """Return the field that a path names at ``depth``, in the struct ``parent``."""
        cdef ColumnView *inner = innermost(parent)
        cdef ColumnView *column
        cdef str before = ".".join(field.path[:depth])
        cdef str name = field.path[depth]
        has = f"{self.described(parent)}, and a path can only go through structs"
        names = []
        if inner.kind == KIND_STRUCT:
            names = [name_of(&inner.children[k]) for k in range(inner.n_children)]
            has = f"the fields of {before} are {joined_names(names)}"
            has += suggestion(field.path, depth, names)
            if names.count(name) > 1:
                has = f"{names.count(name)} fields of {before} are named {name!r}; rename one"
        if names.count(name) != 1:
            raise self.error(field, f"the data has no column {{{field.key}}}: {has}")
        column = self.new_conversion()
        make_field(column, parent, &inner.children[names.index(name)], f"{before}.{name}".encode())
        return column

    cdef object missing(self, field):
        """Return the error for a missing column, with the names of the columns."""
        has = "it is a single column; write {0} for it"
        first = field if field.head is None else field.head
        if self.named:
            names = [self.names[i] for i in range(self.n_columns) if not self.columns[i].hidden]
            has = f"its columns are {joined_names(names)}"
            if first.name is not None:
                has += suggestion(field.path, 0, names)
            if len(names) + (self.fields is not NULL) < self.n_columns:
                has += "; its index has no name: pass frame.reset_index()"
        return self.error(field, f"the data has no column {{{field.key}}}: {has}")

    cdef Py_ssize_t index(self, field) except -2:
        """Return the index of a placeholder's column; -1 if there is no such column.

        Names are tried before positions.
        """
        cdef str name = str(field.key)
        indices = self.indices_of.get(name, ()) if self.named else ()
        if len(indices) > 1:
            places = " or ".join([f"{{{i}}}" for i in indices])
            raise self.error(
                field,
                f"{len(indices)} columns are named {name!r}; rename them, or write a position: "
                + places,
            )
        if indices:
            return indices[0]
        cdef Py_ssize_t at = field.position
        if self.fields is not NULL and at >= self.first_own - 1:
            at += 1
        return -1 if field.name is not None or self.single or at >= self.n_columns else at

    cdef str described(self, ColumnView *column):
        what = "single column" if column is &self.root else f"column {name_of(column)!r}"
        return f"the {what} is of type {type_name(column.schema)}"

    cdef object error(self, field, str message):
        """Return an error with a caret under a placeholder."""
        return TemplateError(message, self.text, field.at)


cdef bint make_vector(ColumnView *column, ColumnView *lists, str kind) except -1:
    """Set up a column to write lists as vectors; return False unless they are lists of numbers."""
    cdef ColumnView *items = &innermost(lists).children[0]
    if innermost(lists).kind != KIND_LIST or items.kind in (KIND_NONE, KIND_OTHER):
        return False
    if items.storage == STORAGE_OTHER:
        return False
    column.width = width_of(kind)
    column.vector = -1
    column.zero_copy = items.kind == KIND_FLOAT and items.width == column.width
    column.text = text_of_ready_vector if column.zero_copy else text_of_vector
    return True


cdef inline Py_ssize_t locate(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *count, ColumnView **found
) noexcept nogil:
    """Return the index of a vector's first item; -1 if the vector is invalid.

    Args:
        count: receives the vector's length, or the Fault if the vector is invalid.
        found: receives the column of the items of all vectors.
    """
    cdef Py_ssize_t start, end, at
    cdef ColumnView *lists = column.target
    cdef ColumnView *items
    if lists.kind == KIND_OTHER or is_null(lists, i):
        lists = resolve(lists, &i)
        if lists is NULL:
            count[0] = BAD_INDEX if i < 0 else IS_NULL
            return -1
    found[0] = items = &lists.children[0]
    span(lists, i, &start, &end)
    count[0] = end - start
    if column.vector != count[0]:
        if column.vector >= 0:
            count[0] = OTHER_LENGTH
            return -1
        column.vector = count[0]
    if items.validity is not NULL:
        for at in range(start, end):
            if is_null(items, at):
                count[0] = NULL_INSIDE
                return -1
    return start + items.offset


cdef const char *text_of_ready_vector(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n
) noexcept nogil:
    """Return the bytes of a vector in Arrow memory, which can be sent unchanged."""
    cdef ColumnView *items
    cdef Py_ssize_t start = locate(column, i, n, &items)
    if start < 0:
        return NULL
    n[0] *= column.width
    # An empty array may have no memory, and NULL would mean null.
    if n[0] == 0:
        return column.scratch.base
    return <const char *>items.values + start * column.width


cdef const char *text_of_vector(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Convert the numbers of a vector, and return the vector's bytes."""
    cdef ColumnView *items
    cdef Py_ssize_t k, count, start = locate(column, i, &count, &items)
    if start < 0:
        n[0] = count
        return NULL
    # Local variables stay in registers; the compiler must assume that a write changes the column.
    cdef Storage storage = items.storage
    cdef const void *numbers = items.values
    cdef Py_ssize_t width = column.width
    n[0] = count * width
    cdef char *to = reserve(&column.scratch, column.scratch.base, n[0])
    if to is NULL:
        n[0] = NO_MEMORY
        return NULL
    for k in range(count):
        if not convert(to + k * width, width, number_at(storage, numbers, start + k)):
            n[0] = TOO_LARGE
            return NULL
    return to


cdef inline bint convert(char *to, Py_ssize_t width, double number) noexcept nogil:
    """Write a number; return False if a finite number would become infinite."""
    if width == 8:
        (<double *>to)[0] = number
    elif width == 4:
        (<float *>to)[0] = <float>number
        return isfinite((<float *>to)[0]) or not isfinite(number)
    else:
        (<uint16_t *>to)[0] = half_of(number)
        return (<uint16_t *>to)[0] & 0x7FFF != 0x7C00 or not isfinite(number)
    return True
