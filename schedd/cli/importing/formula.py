"""OpenPBS's job_sort_formula as terms of a priority, if it is a sum of supported terms."""

import ast
from collections.abc import Mapping
from typing import Final

__all__ = ["UnsupportedFormulaError", "formula_weights"]

_TERMS: Final[Mapping[str, tuple[str, float]]] = {
    "queue_priority": ("queue", 1.0),
    "job_priority": ("wish", 1.0),
    "ncpus": ("size", 1.0),
    "eligible_time": ("waiting", 3_600.0),  # it counts seconds, the term hours
    "fairshare_factor": ("fair_share", 1.0),
    "fair_share_factor": ("fair_share", 1.0),
}
"""The term, and the factor between the formula's unit and the term's."""


class UnsupportedFormulaError(ValueError):
    """A part of a formula that is no weighted sum of supported terms."""


def formula_weights(formula: str) -> dict[str, float]:
    """The weights by term. A constant that is added changes no order, and is left out. Raises NoTermError."""
    try:
        tree = ast.parse(formula.strip().strip('"'), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsupportedFormulaError("it cannot be read") from None
    found: dict[str, float] = {}
    try:
        _add_terms(tree, 1.0, found)
    except RecursionError:
        raise UnsupportedFormulaError("it is nested too deeply") from None
    return {term: weight for term, weight in found.items() if weight}


def _add_terms(node: ast.expr, times: float, found: dict[str, float]) -> None:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            _add_terms(left, times, found)
            _add_terms(right, times, found)
        case ast.BinOp(left, ast.Sub(), right):
            _add_terms(left, times, found)
            _add_terms(right, -times, found)
        case ast.UnaryOp(ast.USub(), inner):
            _add_terms(inner, -times, found)
        case ast.UnaryOp(ast.UAdd(), inner):
            _add_terms(inner, times, found)
        case ast.BinOp(left, ast.Mult(), right):
            number = _constant_value(left)
            inner = right
            if number is None:
                number, inner = _constant_value(right), left
            if number is None:
                raise UnsupportedFormulaError(f"{ast.unparse(node)} is a product of two terms")
            _add_terms(inner, times * number, found)
        case ast.BinOp(left, ast.Div(), right):
            number = _constant_value(right)
            if not number:
                raise UnsupportedFormulaError(f"{ast.unparse(node)} is no term divided by a number")
            _add_terms(left, times / number, found)
        case ast.Name(name):
            if name not in _TERMS:
                raise UnsupportedFormulaError(f"there is no priority by {name}")
            term, amount = _TERMS[name]
            found[term] = found.get(term, 0.0) + times * amount
        case _:
            if _constant_value(node) is None:
                raise UnsupportedFormulaError(f"{ast.unparse(node)} is no weighted sum")


def _constant_value(node: ast.expr) -> float | None:
    """What a constant expression comes to; None for any other."""
    match node:
        case ast.Constant(bool()):
            return None
        case ast.Constant(int() | float() as value):
            return float(value)
        case ast.UnaryOp(ast.USub(), inner):
            negated = _constant_value(inner)
            return -negated if negated is not None else None
        case ast.BinOp(left, ast.Mult() | ast.Div() as how, right):
            a, b = _constant_value(left), _constant_value(right)
            if a is None or b is None or (isinstance(how, ast.Div) and not b):
                return None
            return a * b if isinstance(how, ast.Mult) else a / b
    return None
