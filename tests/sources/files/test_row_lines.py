"""The line in which each row of CSV begins, compared with Python's reader."""

from __future__ import annotations

import csv
import io

import pyarrow.csv
from hypothesis import example, given
from hypothesis import strategies as st

from fastresp.sources.files.csv_text import RowLines
from fastresp.sources.files.delimited import _has_returns

TEXTS = st.text(alphabet='a,"\n\r', max_size=40)


def lines(
    text: str, rows: list[int], *, step: int, quote: str = '"', width: bool = False,
    returns: bool = False,
) -> list[int]:  # fmt: skip
    found = RowLines(b",", quote.encode(), rows, width, returns)
    data = text.encode()
    if all(found.feed(data[at : at + step]) for at in range(0, len(data), step)):
        found.finish()
    return found.found


def rows_of_arrow(text: str, quote: str) -> list[list[str]] | None:
    """Return the rows that Arrow reads; None if it refuses the text."""
    if not text.strip("\r\n"):
        return []
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True),
            parse_options=pyarrow.csv.ParseOptions(
                quote_char=quote or False, newlines_in_values=bool(quote)
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={f"f{at}": pyarrow.string() for at in range(41)}
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    return [list(map(str, row.values())) for row in table.to_pylist()]


@given(TEXTS, st.integers(1, 7), st.sampled_from(['"', ""]))
@example('a,"\r\n"\r\n\r\na,a\r\n', 1, '"')
def test_same_rows_as_arrow(text: str, step: int, quote: str) -> None:
    rows = rows_of_arrow(text, quote)
    if rows is None or text.count('"') % 2:
        return  # an unclosed quote is refused earlier
    assert len(lines(text, list(range(99)), step=step, quote=quote)) == len(rows)


@given(st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_same_lines_as_python(end: str, data: st.DataObject) -> None:
    returns = end == "\r"
    fields = st.text(alphabet='a,"\n \r' if returns else 'a,"\n ', max_size=5)
    rows = data.draw(st.lists(st.lists(fields, min_size=2, max_size=2), min_size=1))
    file = io.StringIO()
    csv.writer(
        file, lineterminator=end, quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    ).writerows(rows)
    text = file.getvalue()
    reader = csv.reader(io.StringIO(text, newline=""))
    wanted = [1]
    wanted += [reader.line_num + 1 for _ in reader]
    step = data.draw(st.integers(1, 9))
    assert lines(text, list(range(len(rows))), step=step, returns=returns) == wanted[:-1]
    some = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    assert lines(text, some, step=step, returns=returns) == [wanted[row] for row in some]
    assert _has_returns(text.encode(), b'"') == returns


def test_lines_of_odd_texts() -> None:
    assert lines("a\r\rb\rc", [0, 1, 2], step=1, returns=True) == [1, 3, 4]
    assert lines('a\n"b\r\r"\nc\rd', [1, 2, 3], step=2) == [2, 3, 3]  # as sed counts
    assert lines("\n\r\na\n\n\nb", [0, 1], step=1) == [3, 6]
    assert lines('a,b\n"\n",1\n1\n2,2\n', [0, 1, 2], step=2, width=True) == [1, 2, 5]
    assert lines('"a,b\n"c\n', [0, 1], step=2, quote="") == [1, 2]
    assert lines("a\n", [7], step=9) == []
    assert lines("", [0], step=9) == []
