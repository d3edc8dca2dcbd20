"""Display results at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from html import escape
from typing import Any

__all__ = ["Displayed", "as_html"]

# Maximum number of items of a list or dict that are shown in a table cell.
LINES_SHOWN = 10


class Displayed:
    """A base class for dataclasses: shows text at a prompt, and a table in a notebook."""

    def __repr__(self) -> str:
        return f"<fastresp.{type(self).__name__}: {self}>"

    def _repr_html_(self) -> str:
        kept = [each for each in fields(self) if each.repr]  # type: ignore[arg-type]
        pairs = [(each.name, getattr(self, each.name), _default(each)) for each in kept]
        title = str(self).partition("\n")[0]
        shown = ((name, value) for name, value, default in pairs if value != default)
        return as_html(type(self).__name__, title, shown)


def as_html(name: str, title: str, pairs: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and values for a notebook; all text in it is escaped.

    Args:
        name: the name of the class.
        title: a line above the table.
        pairs: names and values, which are numbers, texts, bytes, lists or dicts.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(key)}</th>'
        f'<td style="text-align:left">{_cell(value)}</td></tr>'
        for key, value in pairs
    )
    caption = f"<b>{escape(name)}</b>{title and ': ' + escape(title)}"
    return f"<div><p>{caption}</p><table><tbody>{rows}</tbody></table></div>"


def _cell(value: Any) -> str:
    """Return a value as HTML, with a line for each item of a list or dict."""
    if isinstance(value, dict):
        lines = [f"{key}: {_text(each)}" for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        lines = [_text(each) for each in value[: LINES_SHOWN + 1]]
        lines += [""] * (len(value) - len(lines))
    else:
        lines = _text(value).splitlines()
    more = [f"and {len(lines) - LINES_SHOWN:,} more"] if len(lines) > LINES_SHOWN else []
    return "<br>".join(map(escape, lines[:LINES_SHOWN] + more))


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default
