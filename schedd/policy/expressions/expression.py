"""A parsed expression."""

from typing import Final

import numpy as np

from schedd.policy.expressions.functions import Floats
from schedd.policy.expressions.parser import FormulaError, FormulaParser
from schedd.policy.expressions.syntax_tree import (
    Columns,
    NameNode,
    SyntaxNode,
    TextTestNode,
    column_values,
    find_cause,
    list_addends,
    list_parts,
    list_steps,
    single_value,
)

MAX_LENGTH: Final = 4096  # maximum length of a formula in characters


class Expression:
    """A parsed formula. Immutable; any thread may evaluate it."""

    __slots__ = ("_addend_parts", "_parts", "_steps", "addends", "names", "text", "text_names")

    def __init__(self, text: str, root: SyntaxNode) -> None:
        self.text = text
        self._parts = tuple(list_parts(root))
        self._steps = list_steps(self._parts)
        self.names = frozenset(one.name for one in self._parts if isinstance(one, NameNode))
        """Names that are used as numbers."""
        self.text_names = frozenset(one.name for one in self._parts if isinstance(one, TextTestNode))
        """Names that are compared with texts."""
        self.addends = tuple(list_addends(root))
        """The parts of the outermost sum, each with its sign; their values add up to the formula's value."""
        parts_of_addends = ((one, sign, tuple(list_parts(one))) for sign, one in self.addends)
        self._addend_parts = tuple(
            (one, sign, parts, list_steps(parts)) for one, sign, parts in parts_of_addends
        )

    def values(self, columns: Columns) -> Floats:
        """Return the value for each job; NaN where there is none. Infinite values are the largest number."""
        if columns.size == 1:
            return np.array([single_value(self._steps, columns)])
        return column_values(self._parts, columns)

    def single_value(self, columns: Columns) -> float:
        """Return the value for the only job of the columns; NaN where it has none."""
        return single_value(self._steps, columns)

    def shares(self, columns: Columns) -> list[tuple[str, Floats]]:
        """Return the text and the values of each addend."""
        if columns.size == 1:
            return [
                (self.text[one.start : one.end], np.array([sign * single_value(steps, columns)]))
                for one, sign, _, steps in self._addend_parts
            ]
        return [
            (self.text[one.start : one.end], sign * column_values(parts, columns))
            for one, sign, parts, _ in self._addend_parts
        ]

    def failing_part(self, columns: Columns) -> str:
        """Return the innermost part that leaves the first job without a value, as text; "" if it has one."""
        with np.errstate(all="ignore"):
            one = find_cause(self._parts, columns)
        return self.text[one.start : one.end] if one is not None else ""


def parse_formula(text: str) -> Expression:
    """Parse a formula. Raises FormulaError."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(MAX_LENGTH + 1, f"it has more than {MAX_LENGTH} characters", "shorten it")
    return Expression(text, FormulaParser(text).parse())
