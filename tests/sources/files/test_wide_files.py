"""CSV with very many columns: the work grows linearly with their number."""

from __future__ import annotations

from pathlib import Path

import pytest
from tables import run

# CPU seconds of a process, which don't depend on other load; the lowest of three.
CODE = """
import io, time
import fastresp
def cost(columns):
    names = ",".join(f"c{i}" for i in range(columns))
    data = f"{names}\\n{','.join('1' * columns)}\\n".encode()
    best = None
    for _ in range(3):
        start = time.process_time()
        out = io.BytesIO()
        fastresp.dump(fastresp.read(io.BytesIO(data), format="csv"), TEMPLATE, out)
        assert out.getvalue().count(b"1") >= columns
        spent = time.process_time() - start
        best = spent if best is None else min(best, spent)
    return best
cost(100)
print(cost(40_000) / cost(5_000))
"""


@pytest.mark.slow
@pytest.mark.parametrize("template", ["HSET k {**}", "SET k {*!json}"])
def test_cost_of_columns_is_linear(template: str) -> None:
    """With 8 times the columns, comparing all pairs of columns would be 64 times the work."""
    ratio = float(run(f"TEMPLATE = {template!r}\n{CODE}").stdout)
    assert ratio < 30


@pytest.mark.slow
def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(100_000)) + "\n" + ",".join("1" * 100_000))
    run(
        f"import fastresp\npath = {str(path)!r}\n"
        "fastresp.dump(fastresp.read(path), 'HSET k {**}', path + '.resp')"
    )
    assert Path(f"{path}.resp").read_bytes().startswith(b"*200002\r\n")
