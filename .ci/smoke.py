"""Test an installed fastresp: encode and, if there is a server program, load and read back.

With --server, a missing server program is an error.
"""

import importlib.metadata
import sys
import warnings

# If a compiled module does not declare itself safe without the GIL, Python only warns, and enables
# the GIL: make this warning an error.
warnings.filterwarnings("error", r"(?s).*global interpreter lock.*module 'fastresp", RuntimeWarning)

import fastresp
from fastresp.server.local_server import LocalServer, find_program

ROWS = [{"id": number, "name": f"user {number}", "score": number / 8} for number in range(10_000)]

assert "site-packages" in fastresp.__file__, f"not the installed one: {fastresp.__file__}"
files = [str(path) for path in importlib.metadata.files("fastresp") or ()]
assert any(path.endswith(".dist-info/sboms/fastresp.cdx.json") for path in files), "no SBOM"
assert fastresp.pack("SET", "k", 1.5) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n1.5\r\n"
done = f"fastresp {fastresp.__version__}, Python {sys.version.split()[0]}: encoded"
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    done += " without a GIL"

if find_program("server"):
    with LocalServer() as server:
        report = fastresp.mass_insert(ROWS, "HSET user:{id} {**-id}", server=server.url)
        assert report.commands == report.replies == len(ROWS), report
        assert report.failed == 0, report
        keys = [f"user:{row['id']}" for row in ROWS]
        found = list(fastresp.fetch_hashes(keys, ["name", "score"], server=server.url))
        assert [row["name"] for row in found] == [row["name"] for row in ROWS]
        assert [float(row["score"]) for row in found] == [row["score"] for row in ROWS]
        done += f", loaded over {report.transport}, read back"
elif "--server" in sys.argv:
    raise SystemExit("no server program was found")

print(done)
