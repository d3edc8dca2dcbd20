"""Add to each wheel of a folder a list of the software that it contains (an SBOM), as PEP 770 says.

    python .ci/sbom.py dist        write fastresp-*.dist-info/sboms/fastresp.cdx.json, CycloneDX 1.6

A wheel contains what Cython generated and, on Linux, the parts of libstdc++ and libgcc that are
linked statically. The versions come from the compiled modules themselves. auditwheel lists the
libraries that it copies into a wheel in its own file, next to this one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import quote

SBOM = "sboms/fastresp.cdx.json"
CYTHON = re.compile(rb"_cython_(\d+_\d+_\d+[a-z0-9]*)")
# The section .comment of an ELF file names the compiler of each linked object file.
GCC = re.compile(rb"GCC: \([^)]*\) (\d+\.\d+\.\d+)")
GCC_LICENSE = "GPL-3.0-or-later WITH GCC-exception-3.1"


def component(name: str, version: str, license_id: str, purl: str) -> dict[str, object]:
    key = "expression" if " " in license_id else "license"
    licensed = license_id if key == "expression" else {"id": license_id}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{key: licensed}],
        "purl": purl,
    }


def newest(pattern: re.Pattern[bytes], modules: list[bytes]) -> str | None:
    """Return the highest version in the modules, such as ``14.2.1``."""
    found = {
        match.decode().replace("_", ".") for text in modules for match in pattern.findall(text)
    }
    return max(
        found, key=lambda text: [int(part) for part in re.findall(r"\d+", text)], default=None
    )


def contents(modules: list[bytes]) -> list[dict[str, object]]:
    """Return what is compiled into the modules.

    Raises:
        SystemExit: no module names the version of Cython.
    """
    cython = newest(CYTHON, modules)
    if cython is None:
        sys.exit("sbom: no compiled module names the version of Cython")
    parts = [component("Cython", cython, "Apache-2.0", f"pkg:pypi/cython@{cython}")]
    if gcc := newest(GCC, modules):
        parts += [
            component(name, gcc, GCC_LICENSE, f"pkg:generic/{quote(name)}@{gcc}")
            for name in ("libstdc++", "libgcc")
        ]
    return parts


def document(wheel: str, metadata: str, modules: list[bytes]) -> bytes:
    """Return the SBOM of a wheel, which depends only on the wheel."""
    headers = HeaderParser().parsestr(metadata)
    version = headers["Version"]
    purl = f"pkg:pypi/fastresp@{version}?file_name={wheel}"
    parts = contents(modules)
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": component("fastresp", version, headers["License-Expression"], purl)
        },
        "components": parts,
        "dependencies": [
            {"ref": purl, "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    return json.dumps(bom, indent=1).encode() + b"\n"


def embed(path: Path) -> None:
    """Rewrite a wheel with its SBOM, which replaces an earlier one."""
    with zipfile.ZipFile(path) as wheel:
        files = {info: wheel.read(info) for info in wheel.infolist()}
    (record,) = (info for info in files if info.filename.endswith(".dist-info/RECORD"))
    folder = record.filename.removesuffix("RECORD")
    name = folder + SBOM
    files = {info: text for info, text in files.items() if info.filename != name}
    metadata = next(text for info, text in files.items() if info.filename == folder + "METADATA")
    modules = [text for info, text in files.items() if info.filename.endswith(".so")]
    bom = document(path.name, metadata.decode(), modules)
    digest = base64.urlsafe_b64encode(hashlib.sha256(bom).digest()).rstrip(b"=").decode()
    lines = [line for line in files.pop(record).decode().splitlines() if not line.startswith(name)]
    lines.insert(-1, f"{name},sha256={digest},{len(bom)}")
    added = zipfile.ZipInfo(name, record.date_time)
    added.external_attr = record.external_attr
    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, text in {**files, added: bom, record: ("\n".join(lines) + "\n").encode()}.items():
            wheel.writestr(info, text, zipfile.ZIP_DEFLATED)
    temporary.replace(path)


def main() -> None:
    wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
    if not wheels:
        sys.exit(f"sbom: {sys.argv[1]} has no wheels")
    for path in wheels:
        embed(path)
        print(f"{path.name}: added {SBOM}")


if __name__ == "__main__":
    main()
