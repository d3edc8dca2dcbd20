"""The three charts at the top of the benchmarks' page."""

from __future__ import annotations

from .charts import Bar, Chart
from .claims import WAYS, against_file
from .data import Results
from .figures import Figure, each, per_second
from .measures import Measured

__all__ = ["pictures"]

MERGED = {
    "RPUSH": "RPUSH onto one list",
    "HSET": "HSET of one hash",
    "SET": "SET of many keys",
    "SADD": "SADD to one set",
}
SERIALISED = {
    "hashes of 10": "200,000 hashes of 10 fields",
    "hashes of 30": "200,000 hashes of 30 fields",
    "HSET": "one hash of 1,000,000 fields",
    "ZADD": "one sorted set of 1,000,000",
}
ENCODERS = {
    "fastresp rows": "fastresp, from tuples",
    "fastresp template, dicts": "fastresp, template over dicts",
    "hiredis.pack_command": "hiredis.pack_command",
    "substitution %": "formatting with %",
    "format": "str.format",
}


def _bar(label: str, figure: Measured, kind: str, ours: bool) -> Bar:
    return Bar(label, figure, format(Figure(figure), kind), ours)


def _loads(results: Results) -> Chart:
    bars = [
        _bar(
            words.replace("`", "").strip("*"),
            per_second("ways", f"SET {way}")(results),
            "k",
            "fastresp" in way,
        )
        for way, words in WAYS.items()
    ]
    about = (
        "300,000 SETs of 129 bytes over a unix socket:",
        "rows per second, with the range",
    )
    return Chart("Load rows into Redis", about, [("", bars)])


def _past(results: Results) -> Chart:
    groups = [
        (
            heading,
            [
                _bar(words, against_file(kind, f"{mode}, columns")(results), "plain", True)
                for kind, words in kinds.items()
            ],
        )
        for heading, mode, kinds in (
            ("Merged", "merged", MERGED),
            ("Serialised", "serialised", SERIALISED),
        )
    ]
    about = (
        "Rate from Arrow columns / redis-cli --pipe with",
        "a ready-made file (dashed), with the range",
    )
    return Chart("Faster than single commands", about, groups, level=1)


def _encoders(results: Results) -> Chart:
    bars = [
        _bar(words, each("encode", f"SET {row}")(results), "ns", "fastresp" in row)
        for row, words in ENCODERS.items()
    ]
    about = (
        "Time per SET of 129 bytes, without a server:",
        "less is better",
    )
    return Chart("Encode a command", about, [("", bars)])


def pictures(results: Results) -> dict[str, Chart]:
    """Return the charts by the names of their files.

    Raises:
        NotMeasured: a bar is not in the results.
    """
    return {
        "benchmarks.svg": _loads(results),
        "benchmarks-merged.svg": _past(results),
        "benchmarks-encode.svg": _encoders(results),
    }
