"""Figures printed in the sources, which the page shows next to the measured ones.

Rates are operations per second, times are seconds, shares are percent of the CPU time.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A row of the 2018 tables: averages of ten runs."""

    seconds: float
    rate: int


PUSH = {
    ("naive", "PythonParser"): Figure(2.37, 42_158),
    ("naive", "HiredisParser"): Figure(2.17, 46_150),
    ("naive", "hiredis (C)"): Figure(1.25, 79_977),
    ("pipelining -P 1000", "PythonParser"): Figure(1.17, 85_642),
    ("pipelining -P 1000", "HiredisParser"): Figure(0.98, 101_535),
    ("pipelining -P 1000", "hiredis (C)"): Figure(0.32, 308_386),
    ("redis-cli, format", "HiredisParser"): Figure(0.25, 394_046),
    ("redis-cli, concatenation +", "HiredisParser"): Figure(0.22, 454_178),
    ("redis-cli, substitution %", "HiredisParser"): Figure(0.16, 638_709),
    ("redis-cli, no generation", "HiredisParser"): Figure(0.07, 1_400_926),
}
POP = {
    ("naive", "PythonParser"): Figure(2.27, 44_021),
    ("naive", "HiredisParser"): Figure(1.91, 52_383),
    ("naive", "hiredis (C)"): Figure(1.07, 93_724),
    ("pipelining", "PythonParser"): Figure(1.09, 91_402),
    ("pipelining", "HiredisParser"): Figure(0.80, 124_924),
    ("pipelining", "hiredis (C)"): Figure(0.14, 720_310),
    ("LRANGE trick", "PythonParser"): Figure(0.33, 304_744),
    ("LRANGE trick", "HiredisParser"): Figure(0.07, 1_416_695),
    ("LRANGE trick", "hiredis (C)"): Figure(0.04, 2_318_716),
}

# Percent, as the report prints them.
PYTHON_TO_C = {
    ("push", "naive"): 57.70,
    ("push", "pipelining -P 1000"): 30.91,
    ("pop", "naive"): 55.89,
    # From its own figures this is PythonParser / C; the three others are HiredisParser / C.
    ("pop", "pipelining"): 12.69,
}
PARSER_GAIN = {"naive": 19.24, "pipelining": 33.16, "LRANGE trick": 43.35, "redis-cli": 80.87}
GENERATION_LOSS = {
    "redis-cli, format": 46.87,
    "redis-cli, concatenation +": 34.26,
    "redis-cli, substitution %": 24.85,
}
# Called cumulative there, but it is the gain over the previous row: 454,178 / 394,046 = 1.1526.
CUMULATIVE_GAIN = {
    "redis-cli, format": 0.0,
    "redis-cli, concatenation +": 15.26,
    "redis-cli, substitution %": 40.63,
}

# By method and parser, percent of the CPU time; they do not add up to 100. Sections 2.5 and 2.6.1
# are the same program: one has the shares by parser, the other that of generation.
PROFILES: dict[tuple[str, str], dict[str, float]] = {
    ("naive", "PythonParser"): {"processing": 3.95, "receiving": 38.54, "sending": 41.18},
    ("naive", "HiredisParser"): {"processing": 4.71, "receiving": 28.33, "sending": 48.10},
    ("pipelining", "PythonParser"): {"processing": 5.88, "receiving": 35.09, "sending": 47.10},
    ("pipelining", "HiredisParser"): {"processing": 7.83, "receiving": 13.90, "sending": 62.91},
    ("LRANGE trick", "PythonParser"): {"processing": 8.65, "receiving": 37.87, "sending": 40.29},
    ("LRANGE trick", "HiredisParser"): {"processing": 12.40, "receiving": 11.67, "sending": 57.52},
    ("redis-cli, format", "PythonParser"): {
        "processing": 20.50, "receiving": 41.51, "sending": 8.45,
    },
    ("redis-cli, format", "HiredisParser"): {
        "processing": 37.08, "receiving": 6.96, "sending": 14.79, "generation": 31.40,
    },
    ("redis-cli, concatenation +", "HiredisParser"): {"processing": 40.53, "generation": 26.34},
    ("redis-cli, substitution %", "HiredisParser"): {"processing": 43.62, "generation": 19.92},
}  # fmt: skip
# "Gain compare to" the section before, in percent, by method and parser. Like "parser total gain"
# it is the processing share / the other's, less one: 5.88 / 3.95 = 1.4886.
SECTION_GAIN = {
    ("pipelining", "PythonParser"): 48.86,
    ("pipelining", "HiredisParser"): 66.24,
    ("LRANGE trick", "PythonParser"): 47.11,
    ("LRANGE trick", "HiredisParser"): 58.37,
    ("redis-cli, format", "PythonParser"): 136.99,
    ("redis-cli, format", "HiredisParser"): 199.03,
    ("redis-cli, concatenation +", "HiredisParser"): 9.30,
    ("redis-cli, substitution %", "HiredisParser"): 7.62,
}

# redis-benchmark -c 1 -q, by the names of the listing without their brackets.
REDIS_BENCHMARK = {
    "PING_INLINE": 34_246.57,
    "PING": 34_843.21,
    "MSET": 24_213.08,
    "SET": 32_467.53,
    "GET": 33_112.59,
    "INCR": 32_679.74,
    "LPUSH": 33_333.33,
    "LPUSH (AGAIN)": 33_222.59,
    "LPOP": 33_670.04,
    "SADD": 33_222.59,
    "SPOP": 34_482.76,
    "LRANGE_100": 22_988.51,
    "LRANGE_300": 13_888.89,
    "LRANGE_450": 11_061.95,
    "LRANGE_600": 9_041.59,
}

# Percent of redis-benchmark's rate over one connection, "depending on the complexity of the
# command".
REUSED, CONNECTING = "50-60%", "25-30%"

# 10,000 pings, one at a time and in a pipeline. With redis-py over TCP: CPU time, and its pipeline
# was a transaction. With the Ruby client on a Mac, over the loopback: wall time.
PING = {"naive": 0.39, "pipelined, a transaction": 0.19}
PING_RUBY = {"naive": 1.185238, "pipelined": 0.250783}

# The best of 7.
WORKFLOW = {
    "create": {"naive": 0.863823890686, "pipelined": 0.132288217545},
    "update": {"naive": 1.03583908081, "pipelined": 0.276007175446},
    "retrieve": {"naive": 0.896469116211, "pipelined": 0.172962903976},
    "cleanup": {"naive": 0.829195022583, "pipelined": 0.105372905731},
}
