"""Public files load at the first try, with every value as Python's own readers read it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
import redis
from command_line import invoke
from needed import file_of
from pyarrow import parquet

from fastresp.server.local_server import LocalServer

Rows: TypeAlias = list[dict[str, str]]


def read_csv(path: Path) -> Rows:
    """Return the rows of a CSV file, without empty cells."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [without_nulls(row) for row in csv.DictReader(io.StringIO(text, newline=""))]


def without_nulls(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if value not in (None, "")}


def csv_of(package: str, name: str) -> Callable[[Path], tuple[str, Rows]]:
    def get(folder: Path) -> tuple[str, Rows]:
        path = file_of(package, name)
        return str(path), read_csv(path)

    return get


BOKEH, VEGA = "bokeh_sampledata", "vega_datasets"


def cars() -> list[dict[str, Any]]:
    """Return rows with nulls, and numbers of both kinds."""
    text = file_of(VEGA, "_data/cars.json").read_text()
    found: list[dict[str, Any]] = json.loads(text, parse_float=str, parse_int=str)
    return found


def json_array(folder: Path) -> tuple[str, Rows]:
    return str(file_of(VEGA, "_data/cars.json")), [*map(without_nulls, cars())]


def late_keys(folder: Path) -> tuple[str, Rows]:
    """Write JSON Lines without the keys of nulls; a new key appears in the last row."""
    rows = [*map(without_nulls, cars())]
    rows[-1]["Note"] = "the last"
    path = folder / "cars.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path), rows


def tsv_with_quotes(folder: Path) -> tuple[str, Rows]:
    """Write TSV as IMDb does: nothing is quoted."""
    rows = read_csv(file_of(BOKEH, "_data/titanic_all.csv"))
    names = [*rows[0]]
    path = folder / "titanic.tsv"
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    assert any('"' in row["name"] for row in rows)
    return str(path), rows


def partitions(folder: Path) -> tuple[str, Rows]:
    """Write Parquet in a folder for each species."""
    rows = read_csv(file_of(BOKEH, "_data/penguins.csv"))
    names = ["island", "bill_length_mm", "body_mass_g", "sex"]
    table = pa.table({name: [row.get(name) for row in rows] for name in ["species", *names]})
    parquet.write_to_dataset(table, folder, partition_cols=["species"])
    kept = [{name: row[name] for name in ["species", *names] if name in row} for row in rows]
    return str(folder / "*" / "*.parquet"), kept


@dataclass(frozen=True)
class File:
    """A file, and a list for the rows of each value of a column."""

    name: str
    get: Callable[[Path], tuple[str, Rows]]
    key: str


FILES = [
    File("empty cells, quotes", csv_of(BOKEH, "_data/titanic_all.csv"), "class"),
    File("empty cells, colours", csv_of(BOKEH, "_data/elements.csv"), "symbol"),
    File("empty columns", csv_of(BOKEH, "_data/airports.csv"), "City"),
    File("gzip", csv_of(BOKEH, "_data/SampleSuperstore.csv.gz"), "City"),
    File("doubled quotes", csv_of(VEGA, "_data/airports.csv"), "state"),
    File("people", csv_of(VEGA, "_data/la-riots.csv"), "neighborhood"),
    File("JSON array", json_array, "Origin"),
    File("JSON Lines with late keys", late_keys, "Origin"),
    File("TSV with quotes as text", tsv_with_quotes, "class"),
    File("Parquet in partitions", partitions, "species"),
    # CI installs statsmodels and plotnine only for this test, without their dependencies.
    File(
        "mostly empty cells",
        csv_of("statsmodels", "datasets/fertility/fertility.csv"),
        "Country Code",
    ),
    File("weeks without a value", csv_of("statsmodels", "datasets/co2/co2.csv"), "date"),
    # seaborn's wheel has no data; this is one of its sets.
    File("diamonds", csv_of("plotnine", "data/diamonds.csv"), "clarity"),
]


def as_hashes(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the fields of documents: numbers as text, without nulls."""
    for row in rows:
        yield {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_first_commands(
    file: File, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """Dry run, load and verify, then a load of documents, need no option."""
    path, rows = file.get(tmp_path)
    on = ["--server", server.url]
    numbered = f"HSET row:{{{file.key}}} {{**}}"
    for command in (["load", "--dry-run"], ["load"], ["verify"]):
        result = invoke(*command, path, numbered, *on)
        assert result.exit_code == 0, result.output
    expected: dict[str, dict[str, str]] = {}
    for row in rows:
        fields = {name: value for name, value in row.items() if name != file.key}
        if fields:
            expected.setdefault(f"row:{row[file.key]}", {}).update(fields)
    found = {
        key.decode(): {name.decode(): value.decode() for name, value in client.hgetall(key).items()}
        for key in client.keys("row:*")
    }
    assert found == expected
    result = invoke("load", path, "RPUSH rows {*!json}", *on)
    assert result.exit_code == 0, result.output
    documents = [
        json.loads(each, parse_float=str, parse_int=str) for each in client.lrange("rows", 0, -1)
    ]
    kept = [*as_hashes(documents)]
    if file.get is partitions:  # in the order of the folders
        kept.sort(key=str)
        rows.sort(key=str)
    assert sorted(map(sorted, map(dict.items, kept))) == sorted(map(sorted, map(dict.items, rows)))
