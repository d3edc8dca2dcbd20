"""Rate limits as users write them."""

from __future__ import annotations

import pytest

import fastresp
from fastresp.cli.ending import in_options
from fastresp.server.options import Rate


@pytest.mark.parametrize(
    ("limit", "rate"),
    [
        (None, None),
        (20_000, Rate(20_000)),
        (0.5, Rate(0.5)),
        ("20000", Rate(20_000)),
        ("1e6", Rate(1_000_000)),
        ("5B", Rate(5, in_bytes=True)),
        ("800KB", Rate(800_000, in_bytes=True)),
        ("50MB", Rate(50_000_000, in_bytes=True)),
        ("50mb", Rate(50_000_000, in_bytes=True)),
        (" 50 MB/s ", Rate(50_000_000, in_bytes=True)),
        ("1.5GB", Rate(1_500_000_000, in_bytes=True)),
        ("64MiB", Rate(64 << 20, in_bytes=True)),
    ],
)
def test_limit(limit: float | str | None, rate: Rate | None) -> None:
    assert Rate.of(limit) == rate


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "inf", "nan", "0", "0MB", "-3"])
def test_not_above_zero(limit: float | str) -> None:
    with pytest.raises(ValueError, match="rate_limit must be a number of commands or bytes"):
        Rate.of(limit)


@pytest.mark.parametrize("limit", ["", "MB", "50Mb", "1 000", "5 apples", "-5MB", "9" * 999 + "MB"])
def test_invalid_texts(limit: str) -> None:
    with pytest.raises(
        ValueError, match=r"such as the text 800KB, 50MB, 1\.5GB or 64MiB"
    ) as caught:
        fastresp.mass_insert([], rate_limit=limit)
    words = in_options(caught.value.args[0])
    assert words.startswith("--rate-limit is '")
    assert "such as 800KB" in words
    assert len(words) < 700


def test_portions() -> None:
    """Where bytes are needed, a command counts as 50 bytes."""
    assert (Rate(1000).commands_in(0.01), Rate(1000).bytes_in(0.1)) == (10, 5000)
    assert (Rate(1).commands_in(0.01), Rate(1).bytes_in(0.1)) == (1, 5)
    in_bytes = Rate(1000, in_bytes=True)
    assert (in_bytes.commands_in(0.01), in_bytes.bytes_in(0.1)) == (None, 100)
    assert Rate(1e300).bytes_in(0.1) > 0
