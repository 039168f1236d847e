"""Expressions over columns of jobs, for formulas in settings: parser and evaluation.

The syntax is a subset of Python expressions, as in OpenPBS's ``job_sort_formula``: numbers, names, ``+ - * /
// % **``, comparisons, ``and or not``, ``a if c else b``, parentheses and functions. Names may have dots
(``queue.max_run``). A name may be compared with texts: ``account == "physics"``, ``queue in ("a", "b")``.

Values are 64-bit floats; truth is 1 or 0. Where Python raises an error (division by zero, a logarithm of 0, a
power that overflows), the result is NaN, which means: no value. As in Python, a branch that is not taken has
no effect.
"""

from schedd.policy.expressions.expression import MAX_LENGTH, Expression, parse_formula
from schedd.policy.expressions.functions import FUNCTIONS, Floats
from schedd.policy.expressions.parser import CONSTANTS, FormulaError
from schedd.policy.expressions.syntax_tree import Columns

__all__ = [
    "CONSTANTS",
    "FUNCTIONS",
    "MAX_LENGTH",
    "Columns",
    "Expression",
    "Floats",
    "FormulaError",
    "parse_formula",
]
