"""Examples of requests and their meaning, from docs/reference/requests.md and tests/dialect/examples.

An example is the text of ``qsub -l``, lines ``# setting=value``, then the canonical form and its notes, or
the two lines of the error. Examples in the folder begin with a sentence.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.dialect import RequestError, canonical, parse_openpbs, parse_torque, resource_list

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "requests.md"
HERE = Path(__file__).parent / "examples"


def examples() -> Iterator[object]:
    for server, block in re.findall(
        r"^```(torque|openpbs)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        for example in block.strip().split("\n\n"):
            request, *lines = example.split("\n")
            yield pytest.param(server, request, lines, id=f"{server}: {request}")
    for server in ("torque", "openpbs"):
        for example in (HERE / f"{server}.txt").read_text().strip().split("\n\n"):
            sentence, request, *lines = example.split("\n")
            yield pytest.param(server, request, lines, id=f"{server}: {sentence}")


def read_example(server: str, text: str, settings: dict[str, str]) -> list[str]:
    nodes, generic = (
        settings[name].split(",") if name in settings else [] for name in ("known_nodes", "generic")
    )
    defaults = resource_list(settings["defaults"]) if "defaults" in settings else {}
    try:
        asked = resource_list(text)
        if server == "torque":
            request = parse_torque(asked, known_nodes=nodes, generic=generic, defaults=defaults)
        else:
            request = parse_openpbs(asked, known_nodes=nodes, generic=generic, defaults=defaults)
    except RequestError as error:
        return str(error).split("\n")
    return [canonical(request), *(f"note: {note}" for note in request.notes)]


@pytest.mark.parametrize(("server", "text", "lines"), list(examples()))
def test_example_gives_the_documented_result(server: str, text: str, lines: list[str]) -> None:
    settings = dict(line[2:].split("=", 1) for line in lines if line.startswith("# "))
    says = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
    assert read_example(server, text, settings) == says


def test_page_has_examples_for_both_servers() -> None:
    blocks = re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert blocks == ["torque", "openpbs"]
