"""Samples: which rows are compared, and the maximum share of all rows that differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import comb

import pyarrow as pa
import pytest
import redis

import fastresp
from fastresp.load.verifying.report import CONFIDENCE, binomial_limit, max_share

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]
TABLE = pa.table({"id": range(50_000), "a": [f"v{i}" for i in range(50_000)]})
TEMPLATE = "SET k:{id} {a}"


@pytest.mark.parametrize("sample", ["10%", 0.1, " 10.0% ", "0.1"])
def test_share(sample: str | float, load: Load, verify: Verify, client: redis.Redis) -> None:
    load(TABLE, TEMPLATE)
    before = client.info("stats")["keyspace_hits"]
    report = verify(TABLE, TEMPLATE, sample=sample)
    read = client.info("stats")["keyspace_hits"] - before
    # Five standard deviations.
    assert abs(report.rows_compared - 5000) < 5 * math.sqrt(50_000 * 0.1 * 0.9)
    assert report.rows == 50_000 and report.values == report.rows_compared == read
    assert report.same and report.at_most is not None and 0.0005 < report.at_most < 0.0007
    assert "of 50,000 rows compared" in str(report)
    assert "a sample: at most 0.06% of the rows differ (95% confidence)" in str(report)


def test_seed(load: Load, verify: Verify, client: redis.Redis) -> None:
    """The same seed chooses the same rows, in columns and in rows; another seed chooses others."""
    found = []
    for source, seed in ((TABLE, 0), (TABLE.to_pylist(), 0), (TABLE, 1), (TABLE, 2**64 + 1)):
        rows: list[int] = []
        verify(
            source, TEMPLATE, sample="1%", seed=seed, differences=lambda d, r=rows: r.append(d.row)
        )
        found.append(rows)
    first, again, other, wrapped = map(set, found)
    assert first == again and other == wrapped
    assert 300 < len(first) < 700 and len(first & other) < 50
    assert max(first) > 45_000 and min(first) < 5_000


def test_all_rows_of_a_sample_of_all(load: Load, verify: Verify, client: redis.Redis) -> None:
    """The number of differing rows is then known."""
    load(TABLE, TEMPLATE)
    report = verify(TABLE, TEMPLATE, sample="100%")
    assert (report.rows_compared, report.at_most) == (50_000, 0)
    client.delete("k:7")
    assert verify(TABLE, TEMPLATE, sample=1).at_most == 1 / 50_000


def test_no_statistic_of_a_part_of_the_sample(
    load: Load, verify: Verify, client: redis.Redis
) -> None:
    """After too many differences, the remaining rows are not a random sample."""
    load(TABLE, TEMPLATE)
    for row in range(1000):
        client.delete(f"k:{row}")
    report = verify(TABLE, TEMPLATE, sample="50%", max_differences=100)
    assert report.rows_compared < 1000 and report.stopped
    assert report.at_most is None and "confidence" not in str(report)


def test_rows_outside_the_sample_still_overwrite(load: Load, verify: Verify) -> None:
    """Positions in lists are also counted in the whole source."""
    rows = [(i % 100, i, f"v{i}") for i in range(20_000)]
    template = ["HSET h:{0} a {2} b:{1} {2}", "SET k:{0} {2} EX 100", "RPUSH l:{0} {2} x"]
    load(rows, template)
    for seed in range(5):
        report = verify(rows, template, sample="5%", seed=seed)
        assert report.same and report.written_meanwhile == 0, report
        assert 700 < report.rows_compared < 1300
        assert report.values == 6 * report.rows_compared


def test_no_row_of_a_small_sample(load: Load, verify: Verify) -> None:
    report = verify([(i, i) for i in range(10)], "SET k:{0} {1}", sample=1e-9)
    assert (report.rows_compared, report.at_most) == (0, 1.0)
    assert "at most 100% of the rows differ" in str(report)


def test_few_differences_in_a_sample(load: Load, verify: Verify, client: redis.Redis) -> None:
    load(TABLE, TEMPLATE)
    for row in range(0, 50_000, 100):
        client.delete(f"k:{row}")
    report = verify(TABLE, TEMPLATE, sample="20%")
    assert report.at_most is not None
    assert report.rows_differing / report.rows_compared < report.at_most
    assert 0.01 < report.at_most < 0.02


@pytest.mark.parametrize(
    "sample", ["0%", "101%", 0, 0.0, -1, 1.5, "x", "", "%", float("nan"), True, [1]]
)
def test_invalid_shares(sample: object, verify: Verify) -> None:
    with pytest.raises(ValueError, match=r"sample must be a share such as '1%' or 0\.01"):
        verify([], TEMPLATE, sample=sample)


def chance_of_as_few(differing: int, looked_at: int, share: float) -> float:
    """Return the probability of at most this many differences, computed in whole numbers."""
    p = Fraction(share)
    terms = (comb(looked_at, k) * p**k * (1 - p) ** (looked_at - k) for k in range(differing + 1))
    return float(sum(terms))


@pytest.mark.parametrize("looked_at", [1, 2, 10, 100, 300])
def test_confidence(looked_at: int) -> None:
    """At the limit, so few differences have a probability of 5% (Clopper and Pearson)."""
    for differing in {0, 1, looked_at // 10, looked_at // 2, looked_at - 1} - {looked_at}:
        share = binomial_limit(differing, looked_at, CONFIDENCE)
        assert chance_of_as_few(differing, looked_at, share) == pytest.approx(0.05, abs=1e-9)
        assert max_share(differing, looked_at, 10**9) == share
    assert max_share(looked_at, looked_at, 10**9) == 1.0


def test_confidence_of_many() -> None:
    all_rows = 10**12
    assert max_share(0, 10**9, all_rows) == pytest.approx(2.9957e-9, rel=1e-4)  # the rule of three
    assert max_share(10**6, 10**8, all_rows) == pytest.approx(0.0100164, rel=1e-5)  # nearly normal
    limits = [max_share(k, 1000, all_rows) for k in range(0, 1000, 7)]
    assert limits == sorted(limits)


def test_limit_is_at_most_the_remaining_rows() -> None:
    assert max_share(0, 9, 10) == 0.1 and max_share(1, 9, 10) == 0.2 and max_share(2, 10, 10) == 0.2
    assert max_share(0, 0, 10) == 1.0
