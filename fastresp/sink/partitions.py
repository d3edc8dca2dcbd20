"""Read hashes in parts, one for each task of an engine, as columns of given types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ..encode.key_columns import as_pattern
from ..replies.fetch_hashes import fetch_hashes
from ..resp.slots import SLOTS
from ..server.options import check_timeout
from ..server.settings import with_password
from .types import check_types, parse_batch

__all__ = ["HashPartitions"]


@dataclass
class HashPartitions:
    """The hashes to read, their columns, and the number of parts.

    Attributes:
        schema: the columns and their types. One column has the part of the key that the pattern's
            placeholder matches; if the pattern has no placeholder, the column ``key`` has the whole
            key. Each other column has the field with the column's name.
        pattern: as for ``fetch_hashes``, such as ``"user:{id}"`` or ``"user:*"``.
        server: a URL; None for the environment variable ``REDIS_URL`` of each task.
        password: the server's password, if it is not in the URL.
        partitions: number of parts. Each part returns the keys of a range of slots. On a single
            server, each part scans all keys.
        timeout: as for ``fetch_hashes``.

    Raises:
        ValueError: the schema lacks the pattern's column, has only this column, or has a type that
            can't be parsed from text; or a number is invalid.
    """

    schema: pa.Schema
    pattern: str
    server: str | None = None
    password: str | None = field(default=None, repr=False)
    partitions: int = 1
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        column = as_pattern(self.pattern).column
        if column not in self.schema.names:
            raise ValueError(
                f"the pattern {self.pattern!r} needs a column {column!r}, which the schema lacks"
            )
        if len(self.schema) == 1:
            raise ValueError(f"the schema has only {column!r}; add a field of the hashes")
        if not isinstance(self.partitions, int) or not 1 <= self.partitions <= SLOTS:
            raise ValueError(f"partitions must be 1 to {SLOTS:,}, not {self.partitions!r}")
        if not isinstance(self.timeout, int | float | None):
            raise ValueError(f"timeout must be a number of seconds, not {self.timeout!r}")
        check_timeout(self.timeout)
        check_types(self.schema)

    def slot_ranges(self) -> list[range]:
        """Return the slots of each part."""
        ends = [SLOTS * number // self.partitions for number in range(self.partitions + 1)]
        return [range(first, end) for first, end in pairwise(ends)]

    def read(self, slots: range) -> Iterator[pa.RecordBatch]:
        """Yield the hashes of a part, given the part's slots.

        Raises:
            ValueError: a value does not fit the type of its column.
            others: as in ``fetch_hashes``.
        """
        column = as_pattern(self.pattern).column
        binary = [each.name for each in self.schema if pa.types.is_binary(each.type)]
        hashes: Any = fetch_hashes(
            self.pattern,
            [name for name in self.schema.names if name != column],
            server=with_password(self.server, self.password),
            binary=binary,
            timeout=self.timeout,
            slots=slots,
        )
        with hashes:
            for batch in pa.RecordBatchReader.from_stream(hashes):
                yield parse_batch(batch, self.schema, column)
