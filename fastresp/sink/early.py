"""Checks before an engine computes the rows of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome.errors import TemplateError

if TYPE_CHECKING:
    import pyarrow as pa

    from .sink import Sink

__all__ = ["check_early"]


def check_early(sink: Sink, columns: pa.Table, of_text: str = "") -> None:
    """Check that the template of a sink fits the columns, as far as their types are known.

    Args:
        columns: without rows. One of type null may have any type later, such as lists.
        of_text: a note for the error if a column is text and must not be.

    Raises:
        TemplateError: it does not.
    """
    try:
        sink.check(columns)
    except TemplateError as error:
        if "is of type null" in str(error):
            return
        if of_text and "is of type string" in str(error):
            error.add_note(of_text)
        raise
