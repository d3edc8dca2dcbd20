"""Checks before an engine computes the rows of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome.errors import TemplateError

if TYPE_CHECKING:
    import pyarrow as pa

    from .sink import Sink

__all__ = ["check_early"]


def check_early(sink: Sink, columns: pa.Table, of_text: str = "") -> None:
    """Check that the template of a sink fits the columns, as far as the column types are known.

    Args:
        sink: the sink.
        columns: the columns, without rows. A column of type null may later have any type.
        of_text: a note for the error about a text column that must have another type.

    Raises:
        TemplateError: the template does not fit.
    """
    try:
        sink.check(columns)
    except TemplateError as error:
        if "is of type null" in str(error):
            return
        if of_text and "is of type string" in str(error):
            error.add_note(of_text)
        raise
