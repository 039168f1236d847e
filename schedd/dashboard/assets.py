"""Style sheets and scripts, BokehJS among them, under addresses that name their content."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.chart_files import bokeh_script_path

router = RouteTable(prefix="/-/assets")
_STATIC_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    packed: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class _AssetSet:
    """``tag`` names the content of all: modules name each other by relative addresses."""

    tag: str
    files: Mapping[str, _Asset]


@cache
def _load_assets() -> _AssetSet:
    """All files, read once."""
    paths = {path.name: path for path in sorted(_STATIC_FOLDER.iterdir()) if path.suffix in _MEDIA_TYPES}
    paths["bokeh.js"] = bokeh_script_path()
    files = {name: _read_asset(path) for name, path in paths.items()}
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name} {len(file.body)} ".encode() + file.body)
    return _AssetSet(digest.hexdigest()[:16], files)


def _read_asset(path: Path) -> _Asset:
    body = path.read_bytes()
    return _Asset(body, gzip.compress(body, 6, mtime=0), _MEDIA_TYPES[path.suffix])


def asset_path(name: str) -> str:
    """The path of an asset below the dashboard's; it changes with the content."""
    known = _load_assets()
    if name not in known.files:
        raise KeyError(name)
    return f"/-/assets/{known.tag}/{name}"


@router.get("/{tag}/{name}")
def get_asset(request: Request, tag: str, name: str) -> Response:
    """One file; under an old tag, the present content."""
    known = _load_assets()
    found = known.files.get(name)
    if found is None:
        raise HTTPException(404)
    headers = {
        "ETag": f'"{known.tag}"',
        "Cache-Control": "public, max-age=31536000, immutable" if tag == known.tag else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, 304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, 200, headers, media_type=found.media_type)
    return Response(found.body, 200, headers, media_type=found.media_type)
