"""The state of a search index: its documents, backlog and failures."""

from __future__ import annotations

from dataclasses import dataclass

from .display import Displayed
from .excerpts import shortened, visible

__all__ = ["IndexState"]


@dataclass(frozen=True, repr=False)
class IndexState(Displayed):
    """The state of a search index at the end of a load, or while the load waits for it.

    Attributes:
        name: name of the index.
        documents: number of indexed documents.
        waiting: approximate number of documents not indexed yet; 0 if the index is up to date.
        failures: number of writes since the start of the load, by any client, that could not be
            indexed, for example because a vector has the wrong length. Searches do not find these
            documents.
        last_error: the server's message about the last failure; empty if there were no failures.
        last_error_key: the key of the document that failed last.
    """

    name: str
    documents: int
    waiting: int = 0
    failures: int = 0
    last_error: str = ""
    last_error_key: str = ""

    def __str__(self) -> str:
        noun = "document" if self.documents == 1 else "documents"
        behind = f"about {self.waiting:,} not indexed yet" if self.waiting else "up to date"
        words = f"index {self.name}: {self.documents:,} {noun}, {behind}"
        if not self.failures:
            return words
        noun = "failure" if self.failures == 1 else "failures"
        last = visible(f"{self.last_error_key}: {shortened(self.last_error)}")
        return f"{words}, {self.failures:,} indexing {noun} (the last for {last})"
