"""The grammar of OpenPBS's ``select=`` and ``place=``: chunks joined by ``+``; an arrangement and a sharing.

After the server's own readers (``parse_chunk_r`` in ``grunt_parse.c``, ``decode_place`` in ``resc_attr.c``).
"""

import re
from dataclasses import dataclass

from schedd.dialect.span import Span, parse_integer
from schedd.model.request import Place

_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ARRANGEMENTS = {
    "free": Place.FREE,
    "pack": Place.PACK,
    "scatter": Place.SCATTER,
    "vscatter": Place.SCATTER,
}
_SHARINGS = ("excl", "exclhost", "shared")
_PLACE_ALLOWED = (
    "free, pack, scatter or vscatter, then excl, exclhost or shared, then group=RESOURCE, joined by :"
)


@dataclass(frozen=True, slots=True)
class SelectChunk:
    """``count`` chunks, each with its resources in the order given; names in lower case, values as spans."""

    count: int
    resources: tuple[tuple[str, Span], ...]


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """A ``place=``: ``words`` as given, ``group`` the resource that all its nodes must share, or empty."""

    place: Place = Place.FREE
    exclusive: bool = False
    words: frozenset[str] = frozenset()
    group: str = ""


def parse_select(span: Span) -> list[SelectChunk]:
    """The chunks of a select; at least one unit in all. Raises RequestError."""
    chunks = [_chunk(piece.strip()) for piece in span.split_outside_quotes("+")]
    if not any(chunk.count for chunk in chunks):
        raise span.error("no chunk is asked for", "at least one, for example 2:ncpus=4")
    return [chunk for chunk in chunks if chunk.count]


def _chunk(span: Span) -> SelectChunk:
    first, *rest = (piece.strip() for piece in span.split_outside_quotes(":"))
    count = 1
    if "=" in str(first):
        rest = [first, *rest]
    elif not str(first):
        raise first.error(
            "a chunk of the list is empty", "a count and resources, for example 2:ncpus=4:mem=1gb"
        )
    else:
        count = parse_integer(first, "the number of chunks", least=0)
    resources: dict[str, Span] = {}
    for piece in rest:
        name, value = piece.partition("=")
        key = str(name).strip().lower()
        if value is None or not _RESOURCE.fullmatch(key) or not str(value).strip():
            raise piece.error(f"{piece.shown()} is no resource of a chunk", "name=value, joined by :")
        if key in resources:
            raise piece.error(f"{key}= is given twice for one chunk")
        resources[key] = value.strip()
    return SelectChunk(count, tuple(resources.items()))


def parse_place(span: Span) -> PlaceSpec:
    """The placing; at most one arrangement and one sharing. Raises RequestError."""
    words: list[str] = []
    place, group = Place.FREE, ""
    for piece in (piece.strip() for piece in span.split(":")):
        name, value = piece.partition("=")
        word = str(name).lower()
        if word == "group" and value is not None and str(value) and not group:
            group = str(value)
            continue
        family = _ARRANGEMENTS if word in _ARRANGEMENTS else _SHARINGS
        if word not in family or value is not None:
            raise piece.error(f"{piece.shown()} is no placing", _PLACE_ALLOWED)
        if other := next((earlier for earlier in words if earlier in family), ""):
            raise piece.error(f"'{word}' contradicts '{other}'", _PLACE_ALLOWED)
        words.append(word)
        place = _ARRANGEMENTS.get(word, place)
    return PlaceSpec(place, bool({"excl", "exclhost"} & set(words)), frozenset(words), group)
