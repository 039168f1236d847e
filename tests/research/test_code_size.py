"""Lines of code are counted apart from docstrings, comments and blank lines."""

from research.code_size import count_python_lines

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
