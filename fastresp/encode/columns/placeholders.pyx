# cython: language_level=3, cdivision=True
"""Find the columns named by placeholders, and convert them as requested."""

from libc.stdlib cimport free
from libc.string cimport memset

from .arrow cimport ArrowSchema, Schema
from .arrow_types cimport build, extension_name, is_fields, settle_json, type_name
from .cell cimport (
    FORM_LIST,
    FORM_MAP,
    FORM_NONE,
    FORM_STRUCT,
    FORM_VALUE,
    Cell,
    allocate,
    destroy,
    innermost,
    make_field,
    name_of,
    rename,
)
from .as_json cimport text_of_json, text_of_nested
from .as_vectors cimport make_vector
from .numbers_and_strings cimport text_of_any
from ...resp.out cimport reserve

from collections import Counter

from ...outcome.errors import TemplateError
from .arrow_types import DOCUMENT
from ...outcome.messages import joined_names, quoted_name, suggestion
from ..fields import (
    Absent,
    Field,
    Items,
    Pairs,
    Row,
)

# How the name of an unnamed pandas index begins: the user did not create this column.
cdef str INDEX_NAME = "__index_level_"
# The initial scratch memory of a form, in bytes.
cdef Py_ssize_t SCRATCH_BYTES = 256


cdef class Columns:
    """The columns of a schema, and the cells that write the values of placeholders.

    A form is a cell for a placeholder with a conversion or a path.

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
        self.kept = []
        self.text = plan.text
        build(&self.root, top, self.kept)
        if schema.names is not None:
            rename(&self.root, schema.names)
        settle_json(&self.root)
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
        self.places = {}
        for i in range(self.n_columns):
            if self.named and is_fields(&self.columns[i], top.children[i]):
                self.fields, self.own = &self.columns[i], i + 1
                self.fields.hidden = True
                continue
            self.places.setdefault(self.names[i], []).append(i)
            self.columns[i].hidden = self.names[i].startswith(INDEX_NAME)
        fields = [
            part for command in plan.commands for parts in command for part in parts
            if isinstance(part, Field)
        ]
        whole = [self.is_whole(field) for field in fields]
        self.by_row = self.named and not (fields and all(whole))
        self.forms = allocate(sum([
            self.n_columns if isinstance(field, Pairs) else len(field.path) for field in fields
        ]))

    def __dealloc__(self):
        cdef Py_ssize_t i
        destroy(&self.root)
        for i in range(self.n_forms):
            destroy(&self.forms[i])
        free(self.forms)

    cdef int bind_forms(self) except -1:
        """Set ``may_be_null`` of each form for the current batch."""
        cdef Py_ssize_t i
        cdef Cell *form
        for i in range(self.n_forms):
            form = &self.forms[i]
            form.may_be_null = form.inner.may_be_null
            if form.over is not NULL and form.over.may_be_null:
                form.may_be_null = True
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
            named = self.places.get(part.name, [])
            if not named and self.index(part) < 0:
                raise self.missing(part)
            used.update(named or [self.index(part)])
        return used

    cdef list unnamed(self, set used, field):
        """Return the indices of the columns that {**} sends, except the fields of JSON rows."""
        return self.distinct([i for i in range(self.own, self.n_columns) if i not in used], field)

    cdef Cell *values_of(self, field) except NULL:
        """Return the cell that writes the values of the fields of JSON rows."""
        cdef Found found
        cdef Cell *form
        found.cell = &self.fields.children.children[1]
        if field.convert is None:
            return found.cell
        found.schema = self.top.children[self.own - 1].children[0].children[1]
        form = self.form_of(found, field)
        form.text = text_of_any
        return form

    cdef list distinct(self, columns, field):
        """Return the given indices except for hidden columns; refuse duplicate names."""
        found = [i for i in columns if not self.columns[i].hidden]
        names = [self.names[i] for i in found]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise TemplateError(
                f"two columns are named {twice!r}; rename one", self.text, field.at
            )
        return found

    cdef Cell *cell_of(self, field) except NULL:
        """Return the cell that writes the values of a placeholder."""
        cdef Found found
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
            found.cell, found.schema = &self.root, self.top
            return self.form_of(found, field)
        found = self.find(field)
        if field.convert is None:
            return self.check(found, field)
        if field.convert == "json":
            self.check_json(found, field)
        return self.form_of(found, field)

    cdef Cell *pair_of(self, Py_ssize_t i, field) except NULL:
        """Return the cell that writes a column's values in field-value pairs."""
        cdef Found found = self.column(i, field)
        cdef Cell *form
        if field.convert is None or innermost(found.cell).form not in (
            FORM_LIST, FORM_MAP, FORM_STRUCT, FORM_VALUE
        ):
            return self.check(found, field)
        self.check_json(found, field)
        form = self.form_of(found, field)
        form.text = text_of_any if found.cell.form == FORM_VALUE else text_of_nested
        return form

    cdef Cell *form_of(self, Found found, field) except NULL:
        """Return a cell that converts the values of a column as the placeholder requires."""
        cdef Cell *form = self.new_form()
        form.inner = found.cell
        if reserve(&form.scratch, form.scratch.base, SCRATCH_BYTES) is NULL:
            raise MemoryError
        if field.convert == "json":
            form.text = text_of_json
        elif not make_vector(form, found.cell, field.convert):
            raise TemplateError(
                f"{self.described(found)}, and !{field.convert} needs lists of numbers", self.text,
                field.at,
            )
        return form

    cdef Cell *new_form(self) noexcept:
        self.n_forms += 1
        return &self.forms[self.n_forms - 1]

    cdef int check_json(self, Found found, field) except -1:
        """Refuse a column without a JSON form."""
        if found.cell.json:
            return 0
        hint = (
            "it is binary or contains binary, a map whose keys are lists or structs, or duplicate "
            "field names; cast it to text first, or leave it out"
        )
        if innermost(found.cell).form == FORM_NONE:
            hint = "cast it to text first, or leave it out"
        raise TemplateError(
            f"{self.described(found)}, which has no JSON form: {hint}", self.text, field.at
        )

    cdef Cell *check(self, Found found, field) except NULL:
        """Return the cell of a column; refuse a column whose values don't fit the placeholder."""
        cdef Cell *inner = innermost(found.cell)
        cdef str name = "0" if found.cell is &self.root else quoted_name(name_of(found.cell))
        if not isinstance(field, Items):
            if inner.text is not NULL:
                return found.cell
            hint = "cast it to text first, or leave it out"
            if inner.form in (FORM_LIST, FORM_MAP, FORM_STRUCT):
                hint = f"write {{*{name}}} for one argument per item, or {{{name}!json}} for JSON"
                if isinstance(field, Pairs):
                    hint = f"write {{**!json}} for JSON, or {{**-{name}}} to leave it out"
            raise TemplateError(
                f"{self.described(found)}, which is not one argument: {hint}", self.text, field.at
            )
        if inner.form not in (FORM_LIST, FORM_MAP, FORM_STRUCT):
            raise TemplateError(
                f"{self.described(found)}, and {{*{name}}} needs a list; write {{{name}}} for a "
                "single value", self.text, field.at,
            )
        if inner.form == FORM_MAP:
            inner = &inner.children[0]
        for k in range(inner.n_children):
            if innermost(&inner.children[k]).text is NULL:
                raise TemplateError(
                    f"{self.described(found)}, whose items are not one argument each: write "
                    f"{{{name}!json}} for JSON", self.text, field.at,
                )
        return found.cell

    cdef Found column(self, Py_ssize_t i, field) except *:
        cdef Found found
        if self.names[i] in self.unknown:
            raise TemplateError(
                f"the column {self.names[i]!r} {self.unknown[self.names[i]]}; cast it to text "
                "first, or leave it out", self.text, field.at,
            )
        found.cell = &self.columns[i]
        found.schema = self.top.children[i] if self.named else self.top
        return found

    cdef Found find(self, field) except *:
        """Return the target of a placeholder: a column, or a field within a column."""
        cdef Py_ssize_t depth = 0, i = self.index(field)
        cdef Found found
        if i >= 0:
            return self.column(i, field)
        if self.is_whole(field):
            found.cell, found.schema = &self.root, self.top
        else:
            if field.head is not None:
                i = self.index(field.head)
            if i < 0:
                raise self.missing(field)
            found = self.column(i, field)
        for depth in range(1, len(field.path)):
            found = self.within(found, field, depth)
        return found

    cdef bint is_whole(self, field) except -1:
        """Return whether a placeholder means the single column of structs, or a part of it."""
        first = field if field.head is None else field.head
        return self.single and first.position == 0 and "0" not in self.places

    cdef Found within(self, Found over, field, Py_ssize_t depth) except *:
        """Return the field at ``depth`` of a path, in the struct ``over``."""
        cdef Cell *inner = innermost(over.cell)
        cdef Found found
        cdef str before = ".".join(field.path[:depth])
        cdef str name = field.path[depth]
        has = f"{self.described(over)}, and a path can only go through structs"
        names = []
        if inner.form == FORM_STRUCT:
            names = [name_of(&inner.children[k]) for k in range(inner.n_children)]
            has = f"the fields of {before} are {joined_names(names)}"
            has += suggestion(field.path, depth, names)
            if names.count(name) > 1:
                has = f"{names.count(name)} fields of {before} are named {name!r}; rename one"
        if names.count(name) != 1:
            raise TemplateError(
                f"the data has no column {{{field.key}}}: {has}", self.text, field.at
            )
        while over.schema.format == b"+r" or over.schema.dictionary is not NULL:
            over.schema = over.schema.dictionary or over.schema.children[1]
        found.cell = self.new_form()
        found.schema = over.schema.children[names.index(name)]
        make_field(
            found.cell, over.cell, &inner.children[names.index(name)], f"{before}.{name}".encode()
        )
        return found

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
        found = self.places.get(name, ()) if self.named else ()
        if len(found) > 1:
            raise TemplateError(
                f"{len(found)} columns are named {name!r}; rename them, or write a position: "
                + " or ".join([f"{{{i}}}" for i in found]), self.text, field.at,
            )
        if found:
            return found[0]
        cdef Py_ssize_t at = field.position
        if self.fields is not NULL and at >= self.own - 1:
            at += 1
        return -1 if field.name is not None or self.single or at >= self.n_columns else at

    cdef str described(self, Found found):
        what = f"column {name_of(found.cell)!r}"
        if found.cell is &self.root:
            what = "single column"
        return f"the {what} is of type {type_name(found.schema)}"
