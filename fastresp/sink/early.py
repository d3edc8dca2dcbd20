"""Checks before an engine computes the rows of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome.errors import TemplateError

if TYPE_CHECKING:
    import pyarrow as pa

    from .sink import Sink

__all__ = ["check_early"]


def check_early(sink: Sink, columns: pa.Table, of_text: str = "") -> None:
    """Check that the template of a sink fits the columns, unless a column type is unknown.

    Args:
        sink: the sink.
        columns: a table without rows. The type null means that the type is unknown.
        of_text: a note for the error if a text column has the wrong type for the template.

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
