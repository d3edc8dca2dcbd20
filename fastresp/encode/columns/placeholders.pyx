# cython: language_level=3, cdivision=True
"""Find the columns named by placeholders, and convert them as requested, such as to vectors."""

from libc.math cimport isfinite
from libc.stdint cimport uint16_t
from libc.stdlib cimport free
from libc.string cimport memset

from ...resp.numbers_and_times cimport half_of, width_of
from ...resp.buffer cimport reserve
from .arrow cimport ArrowSchema, Schema
from .arrow_types cimport (
    DOCUMENT,
    build,
    extension_name,
    is_fields,
    set_json,
    text_of_milliseconds,
    type_name,
)
from .cell cimport (
    BAD_INDEX,
    KIND_FLOAT,
    KIND_LIST,
    KIND_MAP,
    KIND_NONE,
    KIND_OTHER,
    KIND_STRUCT,
    KIND_VALUE,
    IS_NULL,
    NO_MEMORY,
    NULL_INSIDE,
    OTHER_LENGTH,
    STORAGE_OTHER,
    TOO_LARGE,
    Cell,
    Storage,
    allocate,
    destroy,
    innermost,
    is_null,
    make_field,
    name_of,
    number_at,
    rename,
    resolve,
    span,
)
from .text cimport text_of_any, text_of_json, text_of_nested

from collections import Counter

from ...outcome.errors import TemplateError
from ...outcome.messages import joined_names, quoted_name, suggestion
from ..fields import Absent, Field, Items, Pairs, Row

# How the name of an unnamed pandas index begins: the user did not create this column.
cdef str INDEX_NAME = "__index_level_"
# The initial scratch memory of a cell, in bytes.
cdef Py_ssize_t SCRATCH_BYTES = 256


cdef class Columns:
    """The columns of a schema, and the cells that write the values of placeholders.

    ``conversions`` are the cells for placeholders with a conversion or a path.

    Args:
        plan: the template.
        schema: the names and types of the columns.
    """

    def __cinit__(self, *args):
        memset(&self.root, 0, sizeof(Cell))

    def __init__(self, plan, Schema schema not None):
        cdef ArrowSchema *top = &schema.schema
        cdef Py_ssize_t i
        self.top = top
        self.kept_alive = []
        self.text = plan.text
        build(&self.root, top, self.kept_alive)
        if schema.names is not None:
            rename(&self.root, schema.names)
        set_json(&self.root)
        self.named = top.format == b"+s"
        self.columns = self.root.children if self.named else &self.root
        self.n_columns = top.n_children if self.named else 1
        if self.n_columns and extension_name(
            top.children[self.n_columns - 1] if self.named else top
        ) == DOCUMENT:
            self.n_columns -= 1
            self.document = &self.columns[self.n_columns]
        self.names = [
            name_of(&self.columns[i]) for i in range(self.n_columns)
        ]
        self.unknown = schema.unknown
        self.single = schema.single and self.named
        self.indices_of = {}
        for i in range(self.n_columns):
            if self.named and is_fields(&self.columns[i], top.children[i]):
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
        """Set ``may_be_null`` of each cell for the current batch."""
        cdef Py_ssize_t i
        cdef Cell *cell
        for i in range(self.n_conversions):
            cell = &self.conversions[i]
            cell.may_be_null = cell.target.may_be_null
            if cell.parent is not NULL and cell.parent.may_be_null:
                cell.may_be_null = True
        return 0

    cdef set named_by(self, arguments, field):
        """Return the indices of the columns that the command names, which {**} leaves out."""
        if not self.named:
            raise TemplateError(
                f"{{{field.key}}} needs columns with names, and this is a single column; write "
                "{0} for it", self.text, field.at,
            )
        used = {
            self.index(part) for parts in arguments for part in parts
            if isinstance(part, Field) and not isinstance(part, (Pairs, Row))
        }
        if isinstance(field, Absent):
            used.update([self.index(part) for part in field.left_out])
        for part in () if isinstance(field, Absent) else field.left_out:
            named = self.indices_of.get(part.name, [])
            if not named and self.index(part) < 0:
                raise self.missing(part)
            used.update(named or [self.index(part)])
        return used

    cdef list unnamed(self, set used, field):
        """Return the indices of the columns that {**} sends, except the fields of JSON rows."""
        columns = [i for i in range(self.first_own, self.n_columns) if i not in used]
        return self.distinct(columns, field)

    cdef Cell *values_of(self, field) except NULL:
        """Return the cell that writes the values of the fields of JSON rows."""
        cdef Column column
        cdef Cell *cell
        column.cell = &self.fields.children.children[1]
        if field.convert is None:
            return column.cell
        column.schema = self.top.children[self.first_own - 1].children[0].children[1]
        cell = self.conversion_of(column, field)
        cell.text = text_of_any
        return cell

    cdef list distinct(self, columns, field):
        """Return the given indices except for hidden columns; refuse duplicate names."""
        visible = [i for i in columns if not self.columns[i].hidden]
        names = [self.names[i] for i in visible]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise TemplateError(
                f"two columns are named {twice!r}; rename one", self.text, field.at
            )
        return visible

    cdef Cell *cell_of(self, field) except NULL:
        """Return the cell that writes the values of a placeholder."""
        cdef Column column
        if isinstance(field, Row):
            if self.document is not NULL:
                return self.document
            if not self.named:
                raise TemplateError(
                    f"{{{field.key}}} needs columns with names, and this is a single column; "
                    "write {0} for it", self.text, field.at,
                )
            for i in self.distinct(range(self.n_columns), field):
                self.check_json(self.column(i, field), field)
            column.cell, column.schema = &self.root, self.top
            return self.conversion_of(column, field)
        column = self.find(field)
        if field.convert is None:
            return self.check(column, field)
        if field.convert == "json":
            self.check_json(column, field)
        elif field.convert == "ms":
            self.check(column, field)
        return self.conversion_of(column, field)

    cdef Cell *pair_of(self, Py_ssize_t i, field) except NULL:
        """Return the cell that writes a column's values in field-value pairs."""
        cdef Column column = self.column(i, field)
        cdef Cell *cell
        if field.convert is None or innermost(column.cell).kind not in (
            KIND_LIST, KIND_MAP, KIND_STRUCT, KIND_VALUE
        ):
            return self.check(column, field)
        self.check_json(column, field)
        cell = self.conversion_of(column, field)
        cell.text = text_of_any if column.cell.kind == KIND_VALUE else text_of_nested
        return cell

    cdef Cell *conversion_of(self, Column column, field) except NULL:
        """Return a cell that converts the values of a column as the placeholder requires."""
        cdef Cell *cell = self.new_conversion()
        cell.target = column.cell
        if reserve(&cell.scratch, cell.scratch.base, SCRATCH_BYTES) is NULL:
            raise MemoryError
        if field.convert == "json":
            cell.text = text_of_json
        elif field.convert == "ms":
            cell.text = text_of_milliseconds
        elif not make_vector(cell, column.cell, field.convert):
            raise TemplateError(
                f"{self.described(column)}, and !{field.convert} needs lists of numbers", self.text,
                field.at,
            )
        return cell

    cdef Cell *new_conversion(self) noexcept:
        self.n_conversions += 1
        return &self.conversions[self.n_conversions - 1]

    cdef int check_json(self, Column column, field) except -1:
        """Refuse a column without a JSON form."""
        if column.cell.json:
            return 0
        hint = (
            "it is binary or contains binary, a map whose keys are lists or structs, or duplicate "
            "field names; cast it to text first, or leave it out"
        )
        if innermost(column.cell).kind == KIND_NONE:
            hint = "cast it to text first, or leave it out"
        raise TemplateError(
            f"{self.described(column)}, which has no JSON form: {hint}", self.text, field.at
        )

    cdef Cell *check(self, Column column, field) except NULL:
        """Return the cell of a column; refuse a column whose values don't fit the placeholder."""
        cdef Cell *inner = innermost(column.cell)
        cdef str name = "0" if column.cell is &self.root else quoted_name(name_of(column.cell))
        if not isinstance(field, Items):
            if inner.text is not NULL:
                return column.cell
            hint = "cast it to text first, or leave it out"
            if inner.kind in (KIND_LIST, KIND_MAP, KIND_STRUCT):
                hint = f"write {{*{name}}} for one argument per item, or {{{name}!json}} for JSON"
                if isinstance(field, Pairs):
                    hint = f"write {{**!json}} for JSON, or {{**-{name}}} to leave it out"
            raise TemplateError(
                f"{self.described(column)}, which is not one argument: {hint}", self.text, field.at
            )
        if inner.kind not in (KIND_LIST, KIND_MAP, KIND_STRUCT):
            raise TemplateError(
                f"{self.described(column)}, and {{*{name}}} needs a list; write {{{name}}} for a "
                "single value", self.text, field.at,
            )
        if inner.kind == KIND_MAP:
            inner = &inner.children[0]
        for k in range(inner.n_children):
            if innermost(&inner.children[k]).text is NULL:
                raise TemplateError(
                    f"{self.described(column)}, whose items are not one argument each: write "
                    f"{{{name}!json}} for JSON", self.text, field.at,
                )
        return column.cell

    cdef Column column(self, Py_ssize_t i, field) except *:
        cdef Column column
        if self.names[i] in self.unknown:
            raise TemplateError(
                f"the column {self.names[i]!r} {self.unknown[self.names[i]]}; cast it to text "
                "first, or leave it out", self.text, field.at,
            )
        column.cell = &self.columns[i]
        column.schema = self.top.children[i] if self.named else self.top
        return column

    cdef Column find(self, field) except *:
        """Return the target of a placeholder: a column, or a field within a column."""
        cdef Py_ssize_t depth = 0, i = self.index(field)
        cdef Column column
        if i >= 0:
            return self.column(i, field)
        if self.is_whole(field):
            column.cell, column.schema = &self.root, self.top
        else:
            if field.head is not None:
                i = self.index(field.head)
            if i < 0:
                raise self.missing(field)
            column = self.column(i, field)
        for depth in range(1, len(field.path)):
            column = self.within(column, field, depth)
        return column

    cdef bint is_whole(self, field) except -1:
        """Return whether a placeholder refers to the single struct column, or to a field in it."""
        first = field if field.head is None else field.head
        return self.single and first.position == 0 and "0" not in self.indices_of

    cdef Column within(self, Column parent, field, Py_ssize_t depth) except *:
        """Return the field at ``depth`` of a path, in the struct ``parent``."""
        cdef Cell *inner = innermost(parent.cell)
        cdef Column column
        cdef Py_ssize_t i
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
            raise TemplateError(
                f"the data has no column {{{field.key}}}: {has}", self.text, field.at
            )
        while parent.schema.format == b"+r" or parent.schema.dictionary is not NULL:
            parent.schema = parent.schema.dictionary or parent.schema.children[1]
        column.cell = self.new_conversion()
        i = names.index(name)
        column.schema = parent.schema.children[i]
        name = f"{before}.{name}"
        make_field(column.cell, parent.cell, &inner.children[i], name.encode())
        return column

    cdef object missing(self, field):
        """Return the error for a missing column, with the names of the columns."""
        has = "it is a single column; write {0} for it"
        first = field if field.head is None else field.head
        if self.named:
            names = [
                self.names[i] for i in range(self.n_columns) if not self.columns[i].hidden
            ]
            has = f"its columns are {joined_names(names)}"
            if first.name is not None:
                has += suggestion(field.path, 0, names)
            if len(names) + (self.fields is not NULL) < self.n_columns:
                has += "; its index has no name: pass frame.reset_index()"
        return TemplateError(
            f"the data has no column {{{field.key}}}: {has}", self.text, field.at
        )

    cdef Py_ssize_t index(self, field) except -2:
        """Return the index of a placeholder's column; -1 if there is no such column.

        Names are tried before positions.
        """
        cdef str name = str(field.key)
        indices = self.indices_of.get(name, ()) if self.named else ()
        if len(indices) > 1:
            raise TemplateError(
                f"{len(indices)} columns are named {name!r}; rename them, or write a position: "
                + " or ".join([f"{{{i}}}" for i in indices]), self.text, field.at,
            )
        if indices:
            return indices[0]
        cdef Py_ssize_t at = field.position
        if self.fields is not NULL and at >= self.first_own - 1:
            at += 1
        return -1 if field.name is not None or self.single or at >= self.n_columns else at

    cdef str described(self, Column column):
        what = f"column {name_of(column.cell)!r}"
        if column.cell is &self.root:
            what = "single column"
        return f"the {what} is of type {type_name(column.schema)}"


cdef bint make_vector(Cell *cell, Cell *lists, str kind) except -1:
    """Set a cell to write lists as vectors; return False if these are not lists of numbers."""
    cdef Cell *items = &innermost(lists).children[0]
    if innermost(lists).kind != KIND_LIST or items.kind in (KIND_NONE, KIND_OTHER):
        return False
    if items.storage == STORAGE_OTHER:
        return False
    cell.target = lists
    cell.width = width_of(kind)
    cell.vector = -1
    cell.zero_copy = items.kind == KIND_FLOAT and items.width == cell.width
    if cell.zero_copy:
        cell.text = text_of_ready_vector
    else:
        cell.text = text_of_vector
    return True


cdef inline Py_ssize_t locate(
    Cell *cell, Py_ssize_t i, Py_ssize_t *count, Cell **found
) noexcept nogil:
    """Return the index of a vector's first item; -1 if the vector is invalid.

    Args:
        count: receives the vector's length, or the Fault if the vector is invalid.
        found: receives the cell that contains the items of all vectors.
    """
    cdef Py_ssize_t start, end, at
    cdef Cell *lists = cell.target
    cdef Cell *items
    if lists.kind == KIND_OTHER or is_null(lists, i):
        lists = resolve(lists, &i)
        if lists is NULL:
            count[0] = BAD_INDEX if i < 0 else IS_NULL
            return -1
    found[0] = items = &lists.children[0]
    span(lists, i, &start, &end)
    count[0] = end - start
    if cell.vector != count[0]:
        if cell.vector >= 0:
            count[0] = OTHER_LENGTH
            return -1
        cell.vector = count[0]
    if items.validity is not NULL:
        for at in range(start, end):
            if is_null(items, at):
                count[0] = NULL_INSIDE
                return -1
    return start + items.offset


cdef const char *text_of_ready_vector(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the bytes of a vector in Arrow memory, which can be sent unchanged."""
    cdef Cell *items
    cdef Py_ssize_t start = locate(cell, i, n, &items)
    if start < 0:
        return NULL
    n[0] *= cell.width
    # An empty array may have no memory, and NULL would mean null.
    if n[0] == 0:
        return cell.scratch.base
    return <const char *>items.values + start * cell.width


cdef const char *text_of_vector(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Convert the numbers of a vector, and return the vector's bytes."""
    cdef Cell *items
    cdef Py_ssize_t k, count, start = locate(cell, i, &count, &items)
    if start < 0:
        n[0] = count
        return NULL
    # Local variables stay in registers; the compiler must assume that a write changes the cell.
    cdef Storage storage = items.storage
    cdef const void *numbers = items.values
    cdef Py_ssize_t width = cell.width
    n[0] = count * width
    cdef char *to = reserve(&cell.scratch, cell.scratch.base, n[0])
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
