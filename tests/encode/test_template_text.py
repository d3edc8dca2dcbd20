"""Template texts: splitting into arguments, and the caret of each error."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import pandas as pd
import pytest
from carets import check_caret

from fastresp import EncodeError, Template, TemplateError, Writer, pack
from fastresp.encode.template import as_template


def fill(text: str | Template, *rows: Any, **options: Any) -> bytes:
    template = text if isinstance(text, Template) else Template(text)
    return b"".join(map(bytes, Writer(template, **options).chunks(rows)))


LITERALS = [
    ("SET a b", ["SET", "a", "b"]),
    ("  SET\ta \x0b\r b  ", ["SET", "a", "b"]),
    ("SET \"a b\" 'c d'", ["SET", "a b", "c d"]),
    ("SET \"\" ''", ["SET", "", ""]),
    (r'SET "\n\r\t\b\a\"\\\x00\xff\q"', ["SET", b'\n\r\t\b\a"\\\x00\xffq']),
    (r'SET "\x4" "\xzz"', ["SET", "x4", "xzz"]),
    (r"SET '\n\'\\x'", ["SET", r"\n'\\x"]),
    (r"SET a\nb \x00", ["SET", r"a\nb", r"\x00"]),
    ("SET 'a\"b' \"a'b\"", ["SET", 'a"b', "a'b"]),
    ("SET 'a;b' \"c\nd\"", ["SET", "a;b", "c\nd"]),
    ("SET pre'a b'post", ["SET", "prea bpost"]),
    ("SET {{}} a{{b}}c '{{'", ["SET", "{}", "a{b}c", "{"]),
    ("SET né✓ 'ü ü'", ["SET", "né✓", "ü ü"]),
    # Only redis-cli's white space ends a word.
    ("SET a\u00a0b c\u3000d", ["SET", "a\u00a0b", "c\u3000d"]),
    ("client list", ["client", "list"]),
]


@pytest.mark.parametrize(("text", "expected"), LITERALS)
def test_literal_text(text: str, expected: list[Any]) -> None:
    assert fill(text, ()) == pack(*expected)


PARTS = [
    ("SET {a}{b} {a}:{b}", ["SET", "12", "1:2"]),
    ("SET {{{a}}} {{{a}}}.x", ["SET", "{1}", "{1}.x"]),
    ("SET 'x {a} y' \"{b}\\n\"", ["SET", "x 1 y", "2\n"]),
    ("SET é{a}é", ["SET", "é1é"]),
    ("SET {a}{a}{a}{a}{a}{a}{a}{a}{a}{a} {b}", ["SET", "1" * 10, 2]),
]


@pytest.mark.parametrize(("text", "expected"), PARTS)
def test_arguments_of_several_parts(text: str, expected: list[Any]) -> None:
    assert fill(text, {"a": 1, "b": 2}) == pack(*expected)


@pytest.mark.parametrize(
    "text",
    [
        "SET {a} 1; DEL {b}",
        "SET {a} 1;DEL {b}",
        "SET {a} 1\nDEL {b}",
        "SET {a} 1\r\nDEL {b}\r\n",
        "\n;SET {a} 1 ;;\n\n DEL {b};",
    ],
)
def test_several_commands(text: str) -> None:
    expected = pack("SET", 1, 1) + pack("DEL", 2)
    assert fill(text, {"a": 1, "b": 2}) == expected
    assert fill(Template("SET {a} 1", "DEL {b}"), {"a": 1, "b": 2}) == expected


# The marker ^ precedes the character that the caret must point at.
BAD_TEXTS = [
    ("^", "the template is empty; it needs a command name"),
    ("^  ; \n;", "the template is empty"),
    ("SET user:^{id", "this brace is not closed; write '{{' for a literal one"),
    ("SET ^{a{b}", "this brace is not closed"),
    ("SET {a} ^{", "this brace is not closed"),
    ("SET a^}", "this brace was not opened; write '}}' for a literal one"),
    ("SET {a}^} x", "this brace was not opened"),
    ("SET '^} '", "this brace was not opened"),
    ('SET x^"a b', "this quote is not closed"),
    ("SET ^'a b\\'", "this quote is not closed"),
    ('SET "a" ^"', "this quote is not closed"),
    ('SET ^"a\\', "this quote is not closed"),
    ("SET ^{} x", "this placeholder names no field; use {name}, {0}, {*list}, {**} or {*!json}"),
    ("SET x^{*}", "this placeholder names no field"),
    ("SET ^{!json}", "this placeholder names no field"),
    ("SET ^{a!xml}", "'!xml' can't be used here; a single field allows !json"),
    ("SET ^{a!f8}", "'!f8' can't be used here; a single field allows !json, !ms, !f16, !f32, !f64"),
    ("SET ^{a!}", "'!' can't be used here"),
    ("SET ^{*!f32}", "this placeholder names no field"),
    ("SET ^{**!f32}", "'!f32' can't be used here; {**} allows !json"),
    ("SET ^x{a!f32}", "{a!f32} must be a whole argument; put spaces around it"),
    ("SET ^{0!f16}{b!f32}", "{0!f16} must be a whole argument"),
    ("SET ^{*a!json}", "'!json' can't be used here"),
    ("SET ^{*-id!json}", "{*!json} is the whole row; to leave out fields, write {**-name!json}"),
    ("HSET {a} ^x{**}", "{**} makes several arguments; put spaces around it"),
    ("HSET ^{**}x", "{**} makes several arguments"),
    ("HSET ^{**}{a}", "{**} makes several arguments"),
    ("SADD s ^t:{*tags}", "{*tags} makes several arguments"),
    ("SADD s ^'{*tags} '", "{*tags} makes several arguments"),
    ("^MONITOR", "MONITOR changes the reply stream"),
    ("SET a b; ^subscribe {c}", "SUBSCRIBE changes the reply stream"),
    ("SET a b ;\n  ^'CLIENT' reply off", "CLIENT REPLY changes the reply stream"),
    ("^pl:{pid} {**}", "this is a key; put the name of a command before it"),
    ("SET a b; ^'k:'{a} {b}", "this is a key"),
    ("SET a ^\ud800", "this character is a lone surrogate, which UTF-8 can't encode"),
    ('SET a "\\^\udfff"', "this character is a lone surrogate"),
    # Only the line with the caret is shown; a tab counts as one column.
    ("SET a b\nSET\t{a} ^{b\nSET c", "this brace is not closed"),
    ("SET 'a\nb' ^}\nSET c", "this brace was not opened"),
    ("SET é✓ ^}", "this brace was not opened"),
]


@pytest.mark.parametrize(("marked", "message"), BAD_TEXTS)
def test_bad_text(marked: str, message: str) -> None:
    position = marked.index("^")
    text = marked.replace("^", "")
    with pytest.raises(TemplateError) as caught:
        Template(text)
    check_caret(caught.value, text, position, message)
    assert caught.value.row is None


def test_caret_in_the_message() -> None:
    with pytest.raises(TemplateError) as caught:
        Template("GET a\nHSET user:{id} na{me")
    assert str(caught.value) == (
        "this brace is not closed; write '{{' for a literal one\n"
        "    HSET user:{id} na{me\n"
        "                     ^"
    )


def test_each_text_of_a_list_must_be_closed() -> None:
    with pytest.raises(TemplateError, match="this quote is not closed"):
        Template('SET "a', 'b" c')
    with pytest.raises(TemplateError, match="this brace is not closed"):
        Template("SET {a", "b} c")
    with pytest.raises(TemplateError, match="the template is empty") as caught:
        Template("SET a b", " ")
    assert caught.value.position == len("SET a b\n")
    with pytest.raises(TemplateError, match="the template is empty"):
        Template()


class Point(NamedTuple):
    x: int
    y: int


class Slotted:
    __slots__ = ("a",)


MISSING = [
    ("SET ^{b} 1", {"a": 1, "c": 2}, "the row has no field {b}: its fields are a, c"),
    ("GET {a}\nSET x:^{b}", {"a": 1}, "the row has no field {b}: its fields are a"),
    ("GET {a}; SADD s ^{*b}", {"a": 1}, "the row has no field {b}: its fields are a"),
    ("SET ^{b!json}", {"a": 1}, "the row has no field {b}"),
    ("SET ^{b}", {}, "the row has no field {b}: the dict has no fields"),
    ("SET ^{b}", dict.fromkeys(range(23)), "the row has no field {b}: its fields are 0, 1, 2"),
    ("SET ^{0}", {"a": 1}, "the row has no field {0}: its fields are a; write a mapping's fields"),
    ("SET ^{z}", Point(1, 2), "the row has no field {z}: its fields are x, y"),
    ("SET {1} ^{2}", Point(1, 2), "the row has no field {2}: its fields are x, y"),
    ("SET ^{2}", (1, 2), "the row has no field {2}: it is a tuple of 2 values without names"),
    ("SET ^{2}", [1, 2], "the row has no field {2}: it is a list of 2 values without names"),
    ("SET ^{id}", (1, 2), "the row has no field {id}: it is a tuple of 2 values"),
    ("SET ^{count}", (1, 2), "the row has no field {count}: it is a tuple of 2 values"),
    ("SET ^{1}", "text", "the row has no field {1}: it is a single str; write {0} for it"),
    ("SET ^{real}", 5, "the row has no field {real}: it is a single int; write {0} for it"),
    ("SET ^{id}", None, "the row has no field {id}: the NoneType has no fields"),
    ("SET ^{a}", Slotted(), "the row has no field {a}: the Slotted has no fields"),
    ("SET ^{99999999999999999999}", (1,), "the row has no field {99999999999999999999}"),
    ("HSET u ^{**}", (1, 2), "{**} needs fields with names, and this row is a tuple without"),
    ("HSET u ^{**}", "text", "{**} needs fields with names, and this row is a str without"),
    (
        "SET u ^{*!json}",
        (1, 2),
        "{*!json} needs fields with names, and this row is a tuple without",
    ),
    ("SET u x^{*!json}", 5, "{*!json} needs fields with names, and this row is a int without"),
    ("HSET u ^{**}", Slotted(), "{**} needs fields with names, and this row is a Slotted"),
]


@pytest.mark.parametrize(("marked", "row", "message"), MISSING)
def test_missing_field(marked: str, row: Any, message: str) -> None:
    text = marked.replace("^", "")
    with pytest.raises(TemplateError) as caught:
        fill(text, row)
    assert caught.value.row == 0
    check_caret(caught.value, text, marked.index("^"), f"row 0: {message}")


def test_missing_field_error_has_the_row() -> None:
    rows = [{"a": 1}] * 1234
    with pytest.raises(TemplateError, match=r"^row 1,234: the row has no field") as caught:
        fill("SET {a}", *rows, {"b": 1})
    assert caught.value.row == 1234
    assert isinstance(caught.value.__cause__, KeyError)
    many = dict.fromkeys(map(str, range(23)))
    with pytest.raises(TemplateError, match="18, 19 and 3 more"):
        fill("SET {a}", many)


@pytest.mark.parametrize(
    ("text", "row", "where"),
    [
        ("SET k {a}", {"a": object()}, "row 0, command 1, field 'a', argument 2: cannot send <ob"),
        ("SET k x{b}{a}", {"a": [], "b": 1}, "field 'a', argument 2: cannot send []"),
        ("SADD s {*a}", {"a": [1, {}]}, "field 'a', argument 3: cannot send {}"),
        ("SADD s {*b} {a}", {"a": {}, "b": [1, 2]}, "field 'a', argument 4: cannot send {}"),
        ("HSET k {**} {c}", {"b": 1, "c": []}, "field 'c', argument 4: cannot send []"),
        ("HSET k {**}", {"b": 1, "c": []}, "field 'c', argument 5: cannot send []"),
        ("SET k {1}", (1, True), "field 1, argument 2: cannot send True (a bool)"),
        ("SADD s {*a}", {"a": "abc"}, "{*a} needs a list, and the field is a str; write {a}"),
        ("SADD s {*a}", {"a": 5}, "{*a} needs a list, and the field is a int; write {a}"),
        ("SET k {a!json}", {"a": float("nan")}, "field 'a', argument 2: NaN and infinity"),
        ("SET k {a!json}", {"a": 1j}, "argument 2: JSON has no form for 1j (a complex); convert"),
        ("SET k {a!json}", {"a": [b"x"]}, "JSON has no form for b'x' (a bytes); decode it, or"),
        ("SET k {a!json}", {"a": pd.NaT}, "field 'a', argument 2: cannot send NaT (a NaTType)"),
    ],
)
def test_value_error_in_a_row(text: str, row: Any, where: str) -> None:
    writer = Writer(Template("GET x", text))
    with pytest.raises(EncodeError) as caught:
        list(writer.chunks([row]))
    assert where in str(caught.value)
    assert (caught.value.row, caught.value.command) == (0, 1)


def test_pickle_copy_repr() -> None:
    template = Template("SET {a} 'x y'", "HSET u {**}")
    for other in (
        pickle.loads(pickle.dumps(template)),
        copy.copy(template),
        copy.deepcopy(template),
    ):
        assert type(other) is Template
        assert other.text == template.text == "SET {a} 'x y'\nHSET u {**}"
        assert fill(other, {"a": 1}) == fill(template, {"a": 1})
    assert repr(template) == r"""Template("SET {a} 'x y'\nHSET u {**}")"""


def test_as_template() -> None:
    template = Template("GET {0}")
    assert as_template(None) is None
    assert as_template(template) is template
    assert as_template("GET {0}").text == "GET {0}"
    assert as_template(["GET {0}", "GET b"]).text == "GET {0}\nGET b"
    with pytest.raises(TypeError, match="a command template must be a str, a list of str"):
        as_template([b"GET a"])  # type: ignore[list-item]


def test_messages_quote_a_part_of_a_long_template() -> None:
    for text in (
        "SET {a} " + "x" * 50_000_000,
        "SET a " + "x" * 500_000 + " {a",
        "SET {" + "a" * 500_000 + "!x}",
    ):
        with pytest.raises(TemplateError) as caught:
            Template(text)
        message, line, caret = str(caught.value).splitlines()
        assert max(len(message) - 1000, len(line) - 210, 0) < 50
        assert len(caret) <= len(line)
    with pytest.raises(TemplateError) as caught:
        Template("SET a " + "x" * 500 + " {a!x} " + "y" * 500)
    message, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :].startswith("{a!x} ")
    assert len(repr(Template("SET a " + "x" * 500))) < 300
