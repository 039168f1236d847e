"""The documents are consistent: links, file paths, and pages named in the code."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.scripts.build import (
    FEDERATION_SECTIONS,
    broken_links,
    features_page,
    federation_page,
    formula_page,
)
from schedd.cli.main import COMMANDS
from schedd.federation.settings import FederationSettings
from tests.conftest import ROOT

_FOLDERS = "schedd|server_adapter|tests|research|docs|sql|release|systemd"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_FOLDERS})/[\w./-]*[\w/]")
_PAGE = re.compile(r"(?<![\w/-])docs/[\w./-]+\.(?:md|py|yml|json)")
_NOT_HERE = ("docs/NAME", "schedd/schedd", "research/results/trials/NNN")


def missing_paths(text: str, root: Path) -> list[str]:
    """Return the paths of this repository that a text names and that do not exist."""
    found = {path.rstrip("/.") for path in _PATH.findall(text)}
    return sorted(path for path in found if not (root / path).exists() and path not in _NOT_HERE)


def pages() -> Iterator[Path]:
    """The documents that describe the present state; records of trials keep the names of their time."""
    yield from (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def test_every_link_between_documents_has_a_target() -> None:
    assert list(broken_links(ROOT)) == []


@pytest.mark.parametrize(
    ("name", "make_page"),
    [
        ("features", features_page),
        ("formula-terms", formula_page),
        ("configuration-federation", federation_page),
    ],
)
def test_generated_page_is_up_to_date(name: str, make_page: Callable[[], str]) -> None:
    page = ROOT / "docs" / "reference" / f"{name}.md"
    assert page.read_text("utf-8") == make_page(), "run `make docs`"


def test_every_section_of_a_federation_is_documented() -> None:
    sections = {name.strip("[]").partition(".")[0] for name in FEDERATION_SECTIONS} - {"federation"}
    tables = {
        name for name, field in FederationSettings.model_fields.items() if "Settings" in str(field.annotation)
    }
    assert sections == tables


def test_every_path_in_a_document_exists() -> None:
    found = {str(page.relative_to(ROOT)): missing_paths(page.read_text("utf-8"), ROOT) for page in pages()}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_every_document_named_in_the_code_exists() -> None:
    missing = {}
    for folder in ("schedd", "server_adapter", "research", "release", "systemd", "docs/trial"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in {".py", ".service", ".toml", ".html", ".json", ".yml"}:
                continue
            named = set(_PAGE.findall(file.read_text("utf-8")))
            if gone := sorted(page for page in named if not (ROOT / page).exists()):
                missing[str(file.relative_to(ROOT))] = gone
    assert missing == {}


def test_job_path_page_names_the_right_folders_for_its_classes() -> None:
    page = (ROOT / "docs" / "reference" / "job-path.md").read_text("utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| ")]
    forms = [int(number) for number, *_ in rows if number.strip().isdecimal()]
    assert forms == [*range(1, 13), 11, 13]
    for _, names, folders in rows:
        sources = [
            file.read_text("utf-8")
            for folder in re.findall(r"`([\w/]+)`", folders)
            for file in (ROOT / folder).glob("*.py")
        ]
        for name in re.findall(r"`([A-Z]\w+)`", names):
            assert any(re.search(rf"^class {name}\b", text, re.MULTILINE) for text in sources), name


def test_broken_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text(
        "# Known: `words` here\n```\n[not a link](nowhere.md)\n# no heading\n```\n"
    )
    (tmp_path / "README.md").write_text(
        "[web](https://example.org) [good](docs/one.md#known-words-here) [self](#top)\n"
        "# Top\n[bad](docs/two.md) [worse](docs/one.md#no-heading)\n"
    )
    assert list(broken_links(tmp_path)) == [
        "README.md: no such file: docs/two.md",
        "README.md: no such heading: docs/one.md#no-heading",
    ]


def test_missing_path_is_detected(tmp_path: Path) -> None:
    (tmp_path / "schedd").mkdir()
    (tmp_path / "schedd" / "here.py").write_text("")
    text = "see `schedd/here.py`, schedd/gone.py and https://example.org/schedd/other.py"
    assert missing_paths(text, tmp_path) == ["schedd/gone.py"]


_OUTPUT = re.compile(
    r"^```\n\$ (?:\.venv/bin/)?(?:schedd )?(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_SHOWN = ("accuracy", "checkjob", "partitions", "showbf", "showplan", "showq", "showstart")
"""Commands whose outputs are compared with the program."""
_SOURCES = ("schedd/cli/user", "schedd/features", "schedd/federation/commands", "schedd/start_sentence.py")


def printed_names(text: str) -> Iterator[str]:
    """Yield column heads, row labels and titles in the outputs of commands in a document."""
    for command, output in _OUTPUT.findall(text):
        if command not in _SHOWN:
            continue
        for line in output.splitlines():
            cells = re.split(r" {2,}", line.strip())
            if len(cells) > 1 and all(re.fullmatch(r"[A-Z][A-Z0-9 /%']*", cell) for cell in cells):
                yield from cells
            elif label := re.match(r"([a-z][a-z ]*[a-z]) {2,}\S", line):
                yield label[1]
            elif title := re.fullmatch(r"([A-Z][a-z ]+):", line):
                yield title[0]


def unknown_names(text: str) -> list[str]:
    """Return the printed names that no command prints."""
    files = [
        file for name in _SOURCES for file in (ROOT / name, *(ROOT / name).rglob("*.py")) if file.is_file()
    ]
    sources = "\n".join(file.read_text("utf-8") for file in files)
    return [name for name in printed_names(text) if not re.search(rf'["n]{re.escape(name)}["\\]', sources)]


@pytest.mark.parametrize("page", ["tour.md", "commands.md"])
def test_outputs_in_documents_have_the_form_of_the_present_program(page: str) -> None:
    text = (ROOT / "docs" / "users" / page).read_text("utf-8")
    assert len(list(printed_names(text))) > 20
    assert unknown_names(text) == []


def test_an_outdated_output_is_detected() -> None:
    text = "```\n$ schedd showq -u ann\nRUNNING  OWNER NAME  LEFT\n\nfirst of all  1\n\nWhat came:\n```\n"
    assert unknown_names(text) == ["OWNER NAME", "first of all", "What came:"]


_COMMAND = re.compile(r"(?:`|<code>|^\$ (?:\S*/)?)schedd ([a-z][a-z-]*)", re.MULTILINE)
_NO_COMMANDS = ("answered", "at", "does")
"""Words after the program's name in quoted log lines."""


def unknown_commands(text: str) -> list[str]:
    """Return the commands of schedd that a text names and that do not exist."""
    return sorted({*_COMMAND.findall(text)} - {*COMMANDS, *_NO_COMMANDS})


def test_commands_named_in_documents_pages_and_code_exist() -> None:
    templates = (ROOT / "schedd").rglob("*.html")
    files = (*pages(), *templates, *(ROOT / "schedd").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): unknown_commands(file.read_text("utf-8")) for file in files}
    assert {name: commands for name, commands in found.items() if commands} == {}


def test_a_former_command_is_detected() -> None:
    assert unknown_commands("<code>schedd pareto show</code> and `schedd showq`") == ["pareto"]
