"""Methods to load the same rows: the table of the README.

The methods are the same as in ``fastresp demo SOURCE TEMPLATE``. fastresp's time includes filling
in its template; the other contenders get complete commands. After each load, DEBUG DIGEST is
compared.
"""

from __future__ import annotations

import argparse

from results import Result
from script import run_script
from turns import show

from fastresp import Template
from fastresp.cli.demo.comparison import compare_rows
from fastresp.cli.demo.methods import PAYLOAD

ROWS = 300_000
TEMPLATES = {"SET": "SET {key} {value}", "HSET": "HSET user:{id} {**-id}"}


def data(kind: str, count: int) -> list[dict[str, str]]:
    if kind == "SET":
        return [{"key": f"key:{number:08}", "value": PAYLOAD} for number in range(count)]
    return [
        {
            "id": f"{number:08}",
            "name": f"customer {number:08}",
            "mail": f"{number:08}@example.com",
            "city": ("Oslo", "Lima", "Kyoto", "Nairobi", "Quito")[number % 5],
            "balance": f"{number * 7 % 100_003 / 100:.2f}",
            "visits": str(number * 13 % 5_000),
        }
        for number in range(count)
    ]


def compare(args: argparse.Namespace) -> list[Result]:
    results = []
    for kind, template in TEMPLATES.items():
        comparison = compare_rows(
            data(kind, args.rows),
            Template(template),
            show,
            rounds=args.rounds,
            budget_s=float("inf"),
        )
        for way, timings in comparison.timings.items():
            results.append(Result("ways", f"{kind} {way}", "", comparison.commands))
            for number, timing in enumerate(timings, start=1):
                cpu = {"server_cpu": timing.server_seconds, "client_cpu": timing.client_seconds}
                results[-1].add(timing.seconds, round=number, **cpu)
    show("")
    return results


if __name__ == "__main__":
    run_script(__doc__, compare, 9, 3, rows=("rows in each load", ROWS))
