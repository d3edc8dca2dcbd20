"""Scripts as parts of templates: how to write keys and arguments, and what is refused."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
from scripts import ADD

import fastresp
from fastresp import Script, TemplateError
from fastresp.encode.template import as_template
from fastresp.resp.split import arguments


def test_command() -> None:
    script = Script("return 1")
    assert script.sha1 == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
    assert (script.text, Script(b"return 1").sha1) == (b"return 1", script.sha1)
    template = script.command("user:{id} 'x y' ", " {n} {*tags} {**}\n")
    writer = fastresp.Writer(template)
    [chunk] = writer.chunks([{"id": 5, "n": 1, "tags": ["a", "b"], "x": "y"}])
    assert arguments(chunk) == (
        b"EVALSHA", script.sha1.encode(), b"2", b"user:5", b"x y", b"1", b"a", b"b", b"x", b"y",
    )  # fmt: skip
    assert fastresp.Writer(script.command()).take() is None
    [chunk] = fastresp.Writer(script.command("", "{0}")).chunks([7])
    assert arguments(chunk) == (b"EVALSHA", script.sha1.encode(), b"0", b"7")


@pytest.mark.parametrize(
    ("keys", "args", "message"),
    [
        ("{*list}", "", "the number of keys must be the same"),
        ("a {**}", "", "the number of keys must be the same"),
        ("a;b", "", "this ends the command"),
        ("a", "b\nc", "this ends the command"),
        ("a 'b", "", "this quote is not closed"),
        ("a", "{b", "this brace is not closed"),
    ],
)
def test_invalid_keys_and_arguments(keys: str, args: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        ADD.command(keys, args)


def test_quoted_ends_are_text() -> None:
    [chunk] = fastresp.Writer(ADD.command("';'", r'"a;\n"')).chunks([0])
    assert arguments(chunk)[3:] == (b";", b"a;\n")


def test_script_needs_text() -> None:
    with pytest.raises(TypeError, match="a Script needs the text of a Lua script, not a PosixPath"):
        Script(Path("x.lua"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for a Script, pass what its command"):
        as_template([ADD])  # type: ignore[list-item]


def test_not_in_a_transaction() -> None:
    with pytest.raises(TemplateError, match="can't be resent within MULTI and EXEC") as caught:
        as_template(["multi", ADD.command("a", "1"), "EXEC"])
    assert str(caught.value).splitlines()[-2:] == [f"    EVALSHA {ADD.sha1} 1 a 1", "    ^"]


def test_as_part_of_a_template() -> None:
    other = Script("return 2")
    template = as_template(["SADD users {id}", ADD.command("u:{id}", "{n}"), other.command()])
    assert template is not None
    assert [len(command) for command in template.commands] == [3, 5, 3]
    assert template.scripts == {ADD.sha1.encode(): ADD.text, other.sha1.encode(): other.text}
    for same in (pickle.loads(pickle.dumps(template)), copy.copy(template)):
        assert (same.text, same.scripts) == (template.text, template.scripts)
    assert pickle.loads(pickle.dumps(ADD)).sha1 == ADD.sha1


def test_missing_field_error_has_its_place() -> None:
    with pytest.raises(TemplateError, match=r"the row has no field \{city\}") as caught:
        fastresp.dump([{"id": 1}], ADD.command("u:{id}", "{city}"), io.BytesIO())
    _, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :] == "{city}"
