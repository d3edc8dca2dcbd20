# cython: language_level=3, cdivision=True
"""Compile a template into steps over Arrow columns.

A step writes constant text and then the values of one argument or placeholder.
"""

from libc.stdlib cimport calloc, free, realloc

from ...resp.buffer cimport reserve
from ...resp.values cimport (
    NULLS_SKIP, Nulls, bulk_string, command_header, has_refused_subcommand, of_pairs,
)
from .arrow cimport ArrowSchema, Batch, Schema
from .arrow_types cimport (
    DOCUMENT, build, extension_name, is_fields, make_vector, set_json, text_of_milliseconds,
    type_name,
)
from .column_view cimport (
    KIND_LIST, KIND_MAP, KIND_NONE, KIND_STRUCT, KIND_VALUE, ColumnView, allocate, bind, destroy,
    find_damage, innermost, make_field, name_of, rename, trim_damage, value,
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


cdef class Steps:
    """The commands to write for each row, compiled for the columns of a schema.

    Placeholders with a conversion or a path have derived columns.

    Args:
        plan: the template.
        schema: the names and types of the columns.
        nulls: how to handle a null.

    Raises:
        TemplateError: a column is missing, or its type does not fit the placeholder.
    """

    def __init__(self, plan, Schema schema not None, int nulls):
        cdef ArrowSchema *top = &schema.schema
        cdef Py_ssize_t i
        self.kept_alive = []
        self.text = plan.text
        build(&self.root, top, self.kept_alive)
        if schema.names is not None:
            rename(&self.root, schema.names, self.kept_alive)
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
        self.left_out, self.texts = [], {}
        self.skips_pairs = of_pairs(<Nulls>nulls) == NULLS_SKIP
        self.commands = <CommandSteps *>calloc(len(plan.commands), sizeof(CommandSteps))
        if self.commands is NULL:
            raise MemoryError
        for command in plan.commands:
            self.n_commands += 1
            self.compile(&self.commands[self.n_commands - 1], command)

    def __dealloc__(self):
        cdef Py_ssize_t i, k
        for i in range(self.n_commands):
            for k in range(self.commands[i].n_steps):
                free(self.commands[i].steps[k].parts)
                free(self.commands[i].steps[k].names)
            free(self.commands[i].steps)
        free(self.commands)
        destroy(&self.root)
        for i in range(self.n_conversions):
            destroy(&self.conversions[i])
        free(self.conversions)

    cdef int attach(self, Batch batch, Py_ssize_t most) except -1:
        """Point all columns to a batch, and prepare the commands for this batch.

        Args:
            batch: the batch.
            most: the maximum size of an argument in bytes.
        """
        cdef Py_ssize_t i, k
        cdef ColumnView *column
        cdef CommandSteps *command
        cdef Step *step
        bind(&self.root, &batch.array, 0)
        with nogil:
            trim_damage(&self.root, self.named)
        for i in range(self.n_conversions):
            column = &self.conversions[i]
            column.may_be_null = column.target.may_be_null or (
                column.parent is not NULL and column.parent.may_be_null
            )
        for i in range(self.n_commands):
            command = &self.commands[i]
            command.counted = not command.varies
            for k in range(command.n_steps):
                step = &command.steps[k]
                if self.skips_pairs and step.pair and step.column.may_be_null:
                    command.counted = False
                if step.kind == STEP_FIELDS:
                    self.load_names(step)
            command.plain = command.counted and command.checked and command.longest <= most
            step = command.steps
            step.text = command.counted_start if command.counted else command.start
            step.size = command.counted_size if command.counted else command.size
        return 0

    cdef int load_names(self, Step *step) except -1:
        """Prepare the names of the fields of JSON rows for a batch."""
        cdef ColumnView *names = step.column.children.children.children
        cdef set left_out = self.left_out[step.left_out]
        cdef list texts = []
        cdef Py_ssize_t i, size
        cdef const char *text
        cdef bytes name
        cdef void *room = realloc(step.names, names.length * sizeof(FieldName) + 1)
        if room is NULL:
            raise MemoryError
        step.names, step.n_names = <FieldName *>room, 0
        for i in range(names.length):
            text = value(names, i, &size)
            name = b"" if text is NULL else text[:size]
            step.names[i].text = NULL
            if text is not NULL and name not in left_out:
                name = bulk_string(name)
                step.names[i].size = len(name)
                name += bytes(16)   # as in keep_text()
                texts.append(name)
                step.names[i].text = name
        step.n_names = names.length
        self.texts[step.left_out] = texts
        return 0

    cdef void check_rows(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        """Check the rows in ``range(first, last)``; end the batch before the first damaged row."""
        cdef Py_ssize_t i, sound
        for i in range(self.n_columns + (self.document is not NULL)):
            sound = find_damage(&self.columns[i], first, last)
            if sound < last:
                last = self.columns[i].length = self.root.length = sound

    cdef ColumnView *damaged(self) noexcept:
        """Return the column with the first damaged value."""
        cdef Py_ssize_t i
        for i in range(self.n_columns + (self.document is not NULL) if self.named else 0):
            if self.columns[i].length <= self.root.length:
                return &self.columns[i]
        return &self.root

    cdef int compile(self, CommandSteps *command, arguments) except -1:
        """Compile the steps of a command."""
        plan_steps = self.plan_steps(arguments)
        cdef Py_ssize_t count = sum([n + (kind in (STEP_VALUE, STEP_JOINED))
                                     for kind, _, n, _, _ in plan_steps])
        cdef Py_ssize_t k, longest
        cdef Step *step
        command.steps = <Step *>calloc(len(plan_steps), sizeof(Step))
        if command.steps is NULL:
            raise MemoryError
        for kind, text, n, pair, what in plan_steps:
            step = &command.steps[command.n_steps]
            command.n_steps += 1
            step.kind = kind
            step.pair = pair
            step.lists = pair or kind in (STEP_ITEMS, STEP_FIELDS)
            step.text = self.keep_text(text)
            step.size = len(text)
            step.arguments = n
            if kind == STEP_JOINED:
                self.set_parts(step, what)
            elif kind == STEP_FIELDS:
                field, left_out = what
                step.column, step.values = self.fields, self.values_of(field)
                step.absent = isinstance(field, Absent)
                step.left_out = len(self.left_out)
                self.left_out.append(left_out)
            elif pair:
                i, field = what
                step.column = self.pair_of(i, field)
            elif kind != STEP_COPY:
                step.column = self.column_of(what)
            command.deletes = command.deletes or kind == STEP_NAME or step.absent
            longest = max(step.n_parts, 1) * SHORT_BYTES
            for k in range(step.n_parts):
                longest += step.parts[k].size
            command.most += step.size + longest + (step.n_parts + 1) * 32
            command.longest = max(command.longest, longest)
        name = arguments[0]
        command.checked = all([isinstance(part, bytes) for part in name]) and (
            not has_refused_subcommand(b"".join(name))
        )
        command.digits = 1
        kinds = [kind for kind, *_ in plan_steps]
        n_lists = sum([isinstance(parts[0], (Items, Pairs)) for parts in arguments])
        command.alone = n_lists and len(arguments) - n_lists <= 2
        command.pairs = any([isinstance(parts[0], Pairs) for parts in arguments])
        command.varies = (
            command.deletes or STEP_ITEMS in kinds or STEP_FIELDS in kinds or count == 0
        ) or (
            # A {**} without columns leaves out the command.
            command.pairs and not any([pair for _, _, _, pair, _ in plan_steps])
        )
        command.start = command.steps.text
        command.size = command.steps.size
        start = command_header(count) + <bytes>plan_steps[0][1]
        command.counted_start = self.keep_text(start)
        command.counted_size = len(start)
        return 0

    def plan_steps(self, arguments):
        """Return the steps of a command, as tuples (kind, text, n, pair, what).

        Returns:
            For each step: the StepKind, the constant text, the number of arguments in this text,
            whether the step is a field-value pair, and what to write after the text.
        """
        cdef list steps = []
        cdef bytes before = b""
        cdef Py_ssize_t n = 0
        for parts in arguments:
            first = parts[0]
            if all([isinstance(part, bytes) for part in parts]):
                before += bulk_string(b"".join(parts))
                n += 1
                continue
            if isinstance(first, Pairs):
                used = self.named_by(arguments, first)
                if self.fields is not NULL:
                    left_out = {
                        self.columns[i].name[:self.columns[i].name_size] for i in used if i >= 0
                    }
                    if isinstance(first, Absent):
                        left_out.update([str(part.key).encode() for part in first.left_out])
                    steps.append((STEP_FIELDS, before, n, False, (first, left_out)))
                    before, n = b"", 0
                others = [i for i in range(self.first_own, self.n_columns) if i not in used]
                for i in self.distinct(others, first):
                    if self.skips_pairs and n:
                        steps.append((STEP_COPY, before, n, False, None))
                        before, n = b"", 0
                    name = bulk_string(self.columns[i].name[:self.columns[i].name_size])
                    kind = STEP_NAME if isinstance(first, Absent) else STEP_VALUE
                    steps.append((kind, before + name, n + 1, True, (i, first)))
                    before, n = b"", 0
                continue
            elif len(parts) > 1:
                steps.append((STEP_JOINED, before, n, False, parts))
            else:
                kind = STEP_ITEMS if isinstance(first, Items) else STEP_VALUE
                steps.append((kind, before, n, False, first))
            before, n = b"", 0
        if n or not steps:
            steps.append((STEP_COPY, before, n, False, None))
        return steps

    cdef int set_parts(self, Step *step, parts) except -1:
        step.parts = <ArgumentPart *>calloc(len(parts), sizeof(ArgumentPart))
        if step.parts is NULL:
            raise MemoryError
        for part in parts:
            if isinstance(part, bytes):
                step.parts[step.n_parts].text = self.keep_text(part)
                step.parts[step.n_parts].size = len(part)
            else:
                step.parts[step.n_parts].column = self.column_of(part)
            step.n_parts += 1
        return 0

    cdef const char *keep_text(self, bytes text) except NULL:
        # Pad the text, since copy_padded() reads it in steps of 16 bytes.
        text += bytes(16)
        self.kept_alive.append(text)
        return text

    def named_by(self, arguments, field):
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

    def check_named(self, field):
        if not self.named:
            raise self.error(
                field,
                f"{{{field.key}}} needs columns with names, and this is a single column; write "
                "{0} for it",
            )

    cdef ColumnView *values_of(self, field) except NULL:
        """Return the column with the values of the fields of JSON rows."""
        cdef ColumnView *values = &self.fields.children.children[1]
        if field.convert is not None:
            values = self.conversion_of(values, field)
            values.text = text_of_any
        return values

    def distinct(self, columns, field):
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

    def is_whole(self, field):
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
        make_field(
            column, parent, &inner.children[names.index(name)], f"{before}.{name}".encode(),
            self.kept_alive,
        )
        return column

    def missing(self, field):
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

    def index(self, field):
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

    def error(self, field, str message):
        """Return an error with a caret under a placeholder."""
        return TemplateError(message, self.text, field.at)
