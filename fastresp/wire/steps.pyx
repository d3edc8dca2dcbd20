# cython: language_level=3, cdivision=True
"""A template as steps over Arrow columns: for each placeholder its column, and how to write it."""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from .arrow cimport ArrowSchema, Batch, Schema
from .bounds cimport keep_sound, sound_rows
from .cells cimport (
    FORM_LIST,
    FORM_MAP,
    FORM_NONE,
    FORM_STRUCT,
    Cell,
    allocate,
    bind,
    build,
    destroy,
    inmost,
    make_unknown,
    name_of,
    room,
    type_name,
)
from .json_cells cimport text_of_json
from .encode cimport NULLS_SKIP, Nulls
from .vector_cells cimport make_vector

from collections import Counter

from ..errors import TemplateError
from .plan import Field, Items, Pairs, Row

# An index of pandas that has no name: a column that nobody made.
cdef str INDEX_NAME = "__index_level_"
cdef str OBJECTS = "Object, of whose values Arrow gets nothing but addresses in memory"
# The scratch memory of a form to begin with.
cdef Py_ssize_t SCRATCH_BYTES = 256


cdef class Steps:
    """What to write for each row of columns with this schema.

    Args:
        plan: the template.
        schema: names and types of the columns.
        nulls: what a null does.

    Raises:
        TemplateError: there is no such column, or what it holds can't be written so.
    """

    def __cinit__(self, *args):
        memset(&self.root, 0, sizeof(Cell))

    def __init__(self, plan, Schema schema not None, int nulls):
        cdef ArrowSchema *top = &schema.schema
        cdef Py_ssize_t i
        self.kept = []
        self.text = plan.text
        self.nulls = <Nulls>nulls
        build(&self.root, top, self.kept)
        self.named = top.format == b"+s"
        self.columns = self.root.children if self.named else &self.root
        self.n_columns = top.n_children if self.named else 1
        self.names = [
            name_of(&self.columns[i]) for i in range(self.n_columns)
        ]
        self.places = {}
        for i in range(self.n_columns):
            self.places.setdefault(self.names[i], []).append(i)
        self.types = [
            type_name(top.children[i] if self.named else top) for i in range(self.n_columns)
        ]
        for i in range(self.n_columns):
            self.columns[i].hidden = self.names[i].startswith(INDEX_NAME)
            if self.named and self.names[i] in schema.objects:
                self.types[i] = OBJECTS
                make_unknown(&self.columns[i])
        fields = [
            part for command in plan.commands for parts in command for part in parts
            if isinstance(part, Field)
        ]
        self.forms = allocate(len(fields))
        self.commands = <Command *>calloc(len(plan.commands), sizeof(Command))
        if self.commands is NULL:
            raise MemoryError
        for command in plan.commands:
            self.n_commands += 1
            self.compile(&self.commands[self.n_commands - 1], command)

    def __dealloc__(self):
        cdef Py_ssize_t i, k
        destroy(&self.root)
        for i in range(self.n_forms):
            destroy(&self.forms[i])
        free(self.forms)
        for i in range(self.n_commands):
            for k in range(self.commands[i].n_steps):
                free(self.commands[i].steps[k].parts)
            free(self.commands[i].steps)
        free(self.commands)

    cdef int attach(self, Batch batch, Py_ssize_t most) except -1:
        """Point all columns to a batch, and see which commands are alike for all its rows.

        Args:
            most: bytes that an argument may have.
        """
        cdef Py_ssize_t i, k
        cdef Command *command
        cdef Step *step
        bind(&self.root, &batch.array, 0)
        with nogil:
            keep_sound(&self.root, self.named)
        for i in range(self.n_forms):
            self.forms[i].may_be_null = self.forms[i].inner.may_be_null
        for i in range(self.n_commands):
            command = &self.commands[i]
            command.counted = not command.may_vary
            for k in range(command.n_steps):
                step = &command.steps[k]
                if self.nulls == NULLS_SKIP and step.pair and step.cell.may_be_null:
                    command.counted = False
            command.plain = command.counted and command.checked and command.longest <= most
            step = command.steps
            step.text = command.counted_start if command.counted else command.start
            step.size = command.counted_size if command.counted else command.size
        return 0

    cdef void look(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        """Look at some more rows, and let the batch end before the first that is damaged."""
        cdef Py_ssize_t i, sound
        for i in range(self.n_columns):
            sound = sound_rows(&self.columns[i], first, last)
            if sound < last:
                last = self.columns[i].length = self.root.length = sound

    cdef Cell *damaged(self) noexcept:
        """The column of the first value that does not lie within its memory."""
        cdef Py_ssize_t i
        for i in range(self.n_columns if self.named else 0):
            if self.columns[i].length <= self.root.length:
                return &self.columns[i]
        return &self.root

    cdef int compile(self, Command *command, arguments) except -1:
        """Make the steps of a command."""
        planned = self.planned(arguments)
        cdef Py_ssize_t count = sum([n + (kind in (STEP_VALUE, STEP_JOINED))
                                     for kind, _, n, _, _ in planned])
        cdef Py_ssize_t i, k, longest
        cdef Step *step
        command.steps = <Step *>calloc(len(planned), sizeof(Step))
        if command.steps is NULL:
            raise MemoryError
        for kind, text, n, pair, what in planned:
            step = &command.steps[command.n_steps]
            command.n_steps += 1
            step.kind = kind
            step.pair = pair
            step.text = self.keep(text)
            step.size = len(text)
            step.arguments = n
            if kind == STEP_JOINED:
                self.set_parts(step, what)
            elif pair:
                i, field = what
                step.cell = self.check(&self.columns[i], i, field)
            elif kind != STEP_COPY and kind != STEP_GROUP:
                step.cell = self.cell_of(what)
        name = arguments[0]
        command.checked = (
            all([isinstance(part, bytes) for part in name]) and b"".join(name).upper() != b"CLIENT"
        )
        command.digits = 1
        kinds = [kind for kind, *_ in planned]
        command.may_vary = STEP_ITEMS in kinds or count == 0 or (
            # A group without any pairs leaves out the command.
            STEP_GROUP in kinds and not any([pair for _, _, _, pair, _ in planned])
        )
        for i in range(command.n_steps):
            step = &command.steps[i]
            longest = max(step.n_parts, 1) * SHORT_BYTES
            for k in range(step.n_parts):
                longest += step.parts[k].size
            command.most += step.size + longest + (step.n_parts + 1) * 32
            command.longest = max(command.longest, longest)
        command.start = command.steps.text
        command.size = command.steps.size
        start = b"*%d\r\n%b" % (count, planned[0][1])
        command.counted_start = self.keep(start)
        command.counted_size = len(start)
        return 0

    cdef list planned(self, arguments):
        """The steps as tuples: kind, text before, arguments in it, whether a pair, and of what."""
        cdef list steps = []
        cdef bytes before = b""
        cdef Py_ssize_t n = 0
        for parts in arguments:
            first = parts[0]
            if all([isinstance(part, bytes) for part in parts]):
                before += framed(b"".join(parts))
                n += 1
                continue
            if isinstance(first, Pairs):
                for i in self.unnamed(arguments, first):
                    if self.nulls == NULLS_SKIP and n:
                        steps.append((STEP_COPY, before, n, False, None))
                        before, n = b"", 0
                    name = framed(self.columns[i].name[:self.columns[i].name_size])
                    steps.append((STEP_VALUE, before + name, n + 1, True, (i, first)))
                    before, n = b"", 0
                if self.nulls == NULLS_SKIP:
                    steps.append((STEP_GROUP, b"", 0, False, None))
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

    cdef list unnamed(self, arguments, field):
        """The columns that no placeholder of the command names: those of {**}."""
        if not self.named:
            raise TemplateError(
                "{**} takes the names of columns, and this is a single column, which is {0}",
                self.text, field.at,
            )
        used = {
            self.index(part) for parts in arguments for part in parts
            if isinstance(part, Field) and not isinstance(part, (Pairs, Row))
        }
        return self.distinct([i for i in range(self.n_columns) if i not in used], field)

    cdef list distinct(self, columns, field):
        """Those that are sent by their names, which have to be different."""
        found = [i for i in columns if not self.columns[i].hidden]
        names = [self.names[i] for i in found]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise TemplateError(
                f"two columns are named {twice!r}; rename one", self.text, field.at
            )
        return found

    cdef int set_parts(self, Step *step, parts) except -1:
        step.parts = <Part *>calloc(len(parts), sizeof(Part))
        if step.parts is NULL:
            raise MemoryError
        for part in parts:
            if isinstance(part, bytes):
                step.parts[step.n_parts].text = self.keep(part)
                step.parts[step.n_parts].size = len(part)
            else:
                step.parts[step.n_parts].cell = self.cell_of(part)
            step.n_parts += 1
        return 0

    cdef const char *keep(self, bytes text) except NULL:
        # Read in steps of 16 bytes.
        text += bytes(16)
        self.kept.append(text)
        return text

    cdef Cell *cell_of(self, field) except NULL:
        """The cell that writes the values of a placeholder."""
        cdef Py_ssize_t i
        if isinstance(field, Row):
            if not self.named:
                raise TemplateError(
                    f"{{{field.key}}} takes the names of columns, and this is a single column, "
                    "which is {0}", self.text, field.at,
                )
            for i in self.distinct(range(self.n_columns), field):
                self.check_json(i, field)
            return self.form_of(&self.root, field)
        i = self.index(field)
        if field.convert is not None:
            if field.convert == "json":
                self.check_json(i, field)
            return self.form_of(&self.columns[i], field)
        return self.check(&self.columns[i], i, field)

    cdef Cell *form_of(self, Cell *inner, field) except NULL:
        """A cell that writes the values of another in the form that a placeholder asks for."""
        cdef Cell *form = &self.forms[self.n_forms]
        self.n_forms += 1
        form.inner = inner
        if room(&form.scratch, SCRATCH_BYTES):
            raise MemoryError
        if field.convert == "json":
            form.text = text_of_json
        elif not make_vector(form, inner, field.convert):
            raise TemplateError(
                f"{self.described(self.index(field))}, and !{field.convert} takes lists of "
                "numbers", self.text, field.at,
            )
        return form

    cdef int check_json(self, Py_ssize_t i, field) except -1:
        """Refuse a column that has no form in JSON."""
        if self.columns[i].json:
            return 0
        hint = "it is binary, or has binary in it"
        if inmost(&self.columns[i]).form == FORM_NONE:
            hint = "cast it to text first, or leave it out"
        raise TemplateError(
            f"{self.described(i)}, which has no form in JSON: {hint}", self.text, field.at
        )

    cdef Cell *check(self, Cell *cell, Py_ssize_t i, field) except NULL:
        """Refuse a column whose values are not what the placeholder takes."""
        cdef Cell *inner = inmost(cell)
        name = self.names[i]
        if not isinstance(field, Items):
            if inner.text is not NULL:
                return cell
            hint = "cast it to text first, or leave it out"
            if inner.form in (FORM_LIST, FORM_MAP, FORM_STRUCT):
                hint = f"{{*{name}}} makes arguments of it, {{{name}!json}} one of JSON"
            raise TemplateError(
                f"{self.described(i)}, which is not one argument: {hint}", self.text, field.at
            )
        if inner.form not in (FORM_LIST, FORM_MAP, FORM_STRUCT):
            raise TemplateError(
                f"{self.described(i)}, and {{*{name}}} takes a list; write {{{name}}} for a "
                "single value", self.text, field.at,
            )
        if inner.form == FORM_MAP:
            inner = &inner.children[0]
        for k in range(inner.n_children):
            if inmost(&inner.children[k]).text is NULL:
                raise TemplateError(
                    f"{self.described(i)}, and what is in it is not one argument each: "
                    f"{{{name}!json}} makes JSON of it", self.text, field.at,
                )
        return cell

    cdef str described(self, Py_ssize_t i):
        return f"the column {self.names[i]!r} is of type {self.types[i]}"

    cdef Py_ssize_t index(self, field) except -1:
        """Which column a placeholder names: by its name first, for that may be a number."""
        cdef str name = str(field.key)
        found = self.places.get(name, ()) if self.named else ()
        if len(found) == 1:
            return found[0]
        if found:
            raise TemplateError(
                f"{len(found)} columns are named {name!r}; rename them, or name this one by "
                f"its position: " + " or ".join([f"{{{i}}}" for i in found]), self.text, field.at,
            )
        if field.name is None and field.position < self.n_columns:
            return field.position
        has = "it is a single column, which is {0}"
        if self.named:
            has = "its columns are " + ", ".join(self.names[:20])
            if self.n_columns > 20:
                has += f" and {self.n_columns - 20} more"
        raise TemplateError(
            f"the data has no column {{{field.key}}}: {has}", self.text, field.at
        )


cdef bytes framed(bytes text):
    """A text as one argument."""
    return b"$%d\r\n%b\r\n" % (len(text), text)
