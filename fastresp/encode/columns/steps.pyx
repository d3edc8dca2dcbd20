# cython: language_level=3, cdivision=True
"""Compile a template into steps over Arrow columns.

A step writes constant text and then the values of one argument or placeholder.
"""

from libc.stdlib cimport calloc, free, realloc

from ...resp.values cimport (
    NULLS_SKIP, Nulls, bulk_string, command_header, has_refused_subcommand, of_pairs,
)
from .arrow cimport Batch, Schema
from .column_view cimport ColumnView, bind, trim_damage, find_damage, value
from .placeholders cimport Columns

from ..fields import Absent, Items, Pairs


cdef class Steps(Columns):
    """The commands to write for each row, compiled for the columns of a schema.

    Args:
        plan: the template.
        schema: the names and types of the columns.
        nulls: how to handle a null.

    Raises:
        TemplateError: a column is missing, or its type does not fit the placeholder.
    """

    def __init__(self, plan, Schema schema not None, int nulls):
        super().__init__(plan, schema)
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

    cdef int attach(self, Batch batch, Py_ssize_t most) except -1:
        """Point all columns to a batch, and prepare the commands for this batch.

        Args:
            batch: the batch.
            most: the maximum size of an argument in bytes.
        """
        cdef Py_ssize_t i, k
        cdef CommandSteps *command
        cdef Step *step
        bind(&self.root, &batch.array, 0)
        with nogil:
            trim_damage(&self.root, self.named)
        self.bind_conversions()
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

    cdef list plan_steps(self, arguments):
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
