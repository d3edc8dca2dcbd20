"""What files hold, as sources of a load."""

from __future__ import annotations

import os
from typing import IO, Any

from .resp_file import RespFile

__all__ = ["read"]


def read(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    format: str | None = None,  # noqa: A002
    limit: int | None = None,
    skip_truncated: bool = False,
) -> Any:
    """Open a file of RESP as a source of ``mass_insert``: see RespFile."""
    if format == "resp" or (format is None and str(source).endswith(".resp")):
        return RespFile(source, limit=limit, skip_truncated=skip_truncated)
    raise ValueError(f"{source} is not a .resp file; give format='resp' if it holds RESP")
