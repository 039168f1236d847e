"""Lines of code are counted apart from docstrings, comments and blank lines."""

import pytest

from research.code_size import count_python_lines, run

TEXT = '''"""Purpose
of the module."""

# why
TOTAL = 1  # how
"""Documented."""
TEXT = """
two lines"""
'''


def test_code_docstrings_comments_and_blank_lines_are_counted_apart() -> None:
    assert count_python_lines(TEXT) == {"code": 3, "docstrings": 3, "comments": 1, "blank": 1}


def test_blank_lines_within_a_text_are_code() -> None:
    assert count_python_lines('A = """\n\nb"""\n') == {"code": 3, "docstrings": 0, "comments": 0, "blank": 0}


def test_each_folder_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert all(row[-1][0].isupper() or row[-1][0] == "`" for row in rows[:-1])
    assert sum(int(row[1].replace(",", "")) for row in rows[:-1]) == int(rows[-1][1].replace(",", ""))
