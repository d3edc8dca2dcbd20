"""Options of engines as text: those that would show a password are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastresp.sink.text_options import reading_options, sink_options


@pytest.mark.parametrize(
    ("options", "given"),
    [(sink_options, {"command": "SET {id} 1"}), (reading_options, {"pattern": "a:*"})],
)
@pytest.mark.parametrize(
    "shown",
    [
        {"password": "s3cret"},
        {"server": "redis://:s3cret@localhost"},
        {"url": "redis://localhost?password=s3cret"},
        {"server": "rediss://localhost?ssl_password=s3cret"},
    ],
    ids=lambda shown: next(iter(shown.values())),
)
def test_password(
    options: Callable[[dict[str, str]], object], given: dict[str, str], shown: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"spark\.fastresp\.password") as caught:
        options(given | shown)
    assert "s3cret" not in str(caught.value)
