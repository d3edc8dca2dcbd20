"""Ways to load the same rows of a user: the table of the README.

300,000 rows, dicts of text, become a SET of 129 bytes each, or a hash of 5 fields each, over a unix
socket. The ways are the same as in ``fastresp demo SOURCE TEMPLATE``: a redis-py pipeline,
``redis-cli --pipe`` fed by each generator or reading a ready-made file, and fastresp through
redis-cli, over a socket, and from Arrow columns. fastresp fills in its template while it is timed;
the others get complete commands. They take turns. After each load the server's DEBUG DIGEST is
compared with the first.

    python bench/ways.py -o ways.json        # about 9 minutes
    python bench/ways.py --fast --rows 50000
"""

from __future__ import annotations

from results import Result
from turns import arguments, finish, show

from fastresp import Template
from fastresp.cli.demo.comparison import compare_rows
from fastresp.cli.demo.generators import PAYLOAD

ROWS = 300_000
TEMPLATES = {"SET": "SET {key} {value}", "HSET": "HSET user:{id} {**-id}"}


def data(kind: str, count: int) -> list[dict[str, str]]:
    """Return the rows of a kind."""
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


def compare(kind: str, count: int, rounds: int) -> list[Result]:
    """Load in each way, in turn; return a row for each."""
    comparison = compare_rows(
        data(kind, count), Template(TEMPLATES[kind]), show, rounds=rounds, budget_s=float("inf")
    )
    results = []
    for way, timings in comparison.timings.items():
        result = Result("ways", f"{kind} {way}", "", comparison.commands)
        for number, timing in enumerate(timings, start=1):
            result.add(
                timing.seconds,
                round=number,
                server_cpu=timing.server_seconds,
                client_cpu=timing.client_seconds,
            )
        results.append(result)
    return results


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=9, fast_rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows in each load")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    results = [row for kind in TEMPLATES for row in compare(kind, args.rows, args.rounds)]
    show("")
    finish(results, args.output)


if __name__ == "__main__":
    main()
