"""Delete keys of the target that the source of a copy lacks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import TypeAlias

from ...outcome.errors import CommandError, SourceError
from ...outcome.report import Report
from ...replies.key_pattern import replies_by_key
from ...replies.scan import Scan
from ...server.preflight import Requirements
from ...server.settings import Server, ServerLike, as_server
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from ..mirror import OWN_KEYS, UNLINK
from .server_entries import ServerEntries

__all__ = ["Delete", "Deleting"]

# Whether to delete keys; or a function that receives their number, and returns whether to do so.
Delete: TypeAlias = bool | Callable[[int], bool]


class Deleting(Feature):
    """Deletes keys of the target that the source lacks, after the copy.

    Args:
        entries: the source.
        target: the target.
        delete: as for ``copy()``.
    """

    def __init__(self, entries: ServerEntries, target: ServerLike | Server, delete: Delete) -> None:
        self._source = entries.server.requiring(commands=())
        self._target = as_server(target, Requirements(nodes=True, commands=(UNLINK,)))
        self._scan = partial(
            Scan, timeout=entries.timeout, glob=entries.match or "*", kind=entries.type
        )
        self._timeout = entries.timeout
        self._delete = delete
        self._deleted = 0

    def opening(self, load: Load) -> Steps[Report | None]:
        yield Blocking(partial(self._target.ask, self._timeout))
        return None

    def finishing(self, load: Load) -> Steps[None]:
        if not (load.report.stopped or load.report.in_doubt):
            yield Blocking(self._run)

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        load.report.deleted = self._deleted

    def _run(self) -> None:
        """Count the keys that the source lacks, and delete them if ``delete`` allows this.

        Raises:
            SourceError: no key of the source matches, so the source may be the wrong server.
        """
        with closing(self._missing()) as missing:
            count = sum(1 for _ in missing)
        if not count:
            return
        with closing(self._scan(self._source).pages()) as pages:
            if not any(pages):
                raise SourceError(
                    f"the source at {self._source} has no keys that match, and the target has "
                    f"{count:,}; nothing was deleted (check the source)"
                )
        if callable(self._delete) and not self._delete(count):
            return
        with (
            closing(self._missing()) as missing,
            closing(replies_by_key(missing, "UNLINK {0}", self._target, self._timeout)) as replies,
        ):
            for _, reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
                self._deleted += reply

    def _missing(self) -> Generator[bytes, None, None]:
        """Yield the keys of the target that the source lacks."""
        with closing(self._scan(self._target.requiring(commands=())).pages()) as pages:
            keys = (key for page in pages for key in page if not key.startswith(OWN_KEYS))
            found = replies_by_key(keys, "EXISTS {0}", self._source, self._timeout)
            with closing(found) as replies:
                for key, reply in replies:
                    if isinstance(reply, CommandError):
                        raise reply
                    if reply == 0:
                        yield key
