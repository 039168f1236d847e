"""The documents hold together."""

from pathlib import Path

from docs.scripts.build import broken_links
from tests.conftest import ROOT


def test_every_link_between_the_documents_leads_somewhere() -> None:
    assert list(broken_links(ROOT)) == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
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
