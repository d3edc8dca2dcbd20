"""No credentials in texts: URLs, settings in queries, and errors that quote them."""

from __future__ import annotations

import pytest

from fastresp.outcome.passwords import masked


@pytest.mark.parametrize("repeated", ["https://h/?,;", ",;", "a.", "a-", "://", "' ", "password ="])
def test_long_texts(repeated: str) -> None:
    """The time is linear: a text of 1 MB would take hours otherwise."""
    masked(f"https://h/?{repeated * (2**20 // len(repeated))}x")
    masked(repeated * (2**20 // len(repeated)))
