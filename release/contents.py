"""What is in a package: what it needs of a host, and its list of contents (SBOM, CycloneDX 1.5)."""

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

from trees import elf_files, libraries

__all__ = ["bill_of_materials", "needs"]

_LICENCES = {  # what older metadata say, as SPDX has it
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "BSD": "BSD-3-Clause",
    "ISC License": "ISC",
}
_SPDX = re.compile(r"[A-Za-z0-9.-]+( (AND|OR|WITH) [A-Za-z0-9.-]+)*")


def needs(home: Path) -> tuple[tuple[str, ...], str]:
    """Sonames of libraries that the host must have, and the least version of its C library."""
    files = elf_files(home)
    said = _said("readelf", "--dynamic", *files)
    names = set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", said))
    versions = re.findall(r"GLIBC_2\.(\d+)", _said("readelf", "--version-info", *files))
    carried = {path.name for path in files}
    glibc = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "libresolv.", "ld-linux")
    wanted = sorted(name for name in names - carried if not name.startswith(glibc))
    return tuple(wanted), f"2.{max(map(int, versions))}"


def bill_of_materials(name: str, version: str, home: Path) -> str:
    """Each distribution, each library inside a wheel, and the interpreter."""
    found = importlib.metadata.distributions(path=[str(libraries(home))])
    parts = [_distribution(dist) for dist in sorted(found, key=lambda dist: dist.name.lower())]
    known = {part["name"] for part in parts}
    if "schedd" not in known:  # the adapter's tree has its modules alone
        parts.append(
            {"type": "library", "name": "schedd-modules", "version": version, **_licensed("Apache-2.0")}
        )
    parts += _chart_script(libraries(home))
    parts += [_file(path, libraries(home)) for path in sorted(libraries(home).glob("*.libs/*"))]
    parts.append(_interpreter(home))
    moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    digest = hashlib.sha256(json.dumps([name, version, parts], sort_keys=True).encode()).hexdigest()
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": name, "version": version, **_licensed("Apache-2.0")},
        },
        "components": parts,
    }
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def _distribution(dist: importlib.metadata.Distribution) -> dict[str, object]:
    name = dist.name.lower()
    found: dict[str, object] = {"type": "library", "name": name, "version": dist.version}
    found["purl"] = f"pkg:pypi/{name}@{dist.version}"
    return found | _licensed(_licence(dist))


def _licence(dist: importlib.metadata.Distribution) -> str:
    """As SPDX has it; the build ends where a distribution does not say."""
    about = dist.metadata.json
    expression = about.get("license_expression")
    if isinstance(expression, str) and expression:
        return expression
    told = str(about.get("license", "")).strip()
    told = _LICENCES.get(told, told)
    if _SPDX.fullmatch(told):
        return told
    named = [one.rpartition(" :: ")[2] for one in about.get("classifier", ()) if one.startswith("License ::")]
    known = [_LICENCES[one] for one in named if one in _LICENCES]
    if not known:
        sys.exit(f"{dist.name} {dist.version} does not say its licence: add it to {__file__}")
    return " OR ".join(known)


def _chart_script(packages: Path) -> list[dict[str, object]]:
    """Return BokehJS if the daemon's package is there. The figures name its version."""
    figures = packages / "schedd/dashboard/built/figures.json"
    if not figures.is_file():
        return []
    (version,) = {figure["version"] for figure in json.loads(figures.read_bytes()).values()}
    purl = f"pkg:npm/%40bokeh/bokehjs@{version}"
    script: dict[str, object] = {"type": "library", "name": "bokehjs", "version": version, "purl": purl}
    return [script | _licensed("BSD-3-Clause")]


def _licensed(expression: str) -> dict[str, object]:
    return {"licenses": [{"expression": expression}]}


def _file(path: Path, below: Path) -> dict[str, object]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "name": str(path.relative_to(below)),
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _interpreter(home: Path) -> dict[str, object]:
    code = "import platform, ssl; print(platform.python_version(), ssl.OPENSSL_VERSION, sep='\\n')"
    version, openssl = _said(home / "bin/python3", "-I", "-B", "-c", code).splitlines()
    return {
        "type": "platform",
        "name": "cpython",
        "version": version,
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
        "properties": [{"name": "built with", "value": openssl}],
        **_licensed("Python-2.0"),
    }


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
