"""Operators and functions of expressions, over columns or single numbers; NaN: no value."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import e, factorial, isnan, nan, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Value = Floats | float


def blank_invalid(bad: object, result: object) -> Floats:
    """The result, and NaN where it is bad."""
    found: Floats = np.where(np.asarray(bad), np.nan, np.asarray(result, np.float64))
    return found


def _overflows(result: Value, *operands: Value) -> npt.NDArray[np.bool_]:
    """Where a result is infinite though no operand is: Python raises OverflowError there."""
    finite = [~np.isinf(one) for one in operands]
    found: npt.NDArray[np.bool_] = np.logical_and.reduce(np.broadcast_arrays(np.isinf(result), *finite))
    return found


def _divide(a: Value, b: Value) -> Floats:
    return blank_invalid(np.equal(b, 0), np.divide(a, b))


def _floor_divide(a: Value, b: Value) -> Floats:
    return blank_invalid(np.equal(b, 0), np.floor_divide(a, b))


def _modulo(a: Value, b: Value) -> Floats:
    return blank_invalid(np.equal(b, 0), np.mod(a, b))


def raise_power(a: Value, b: Value) -> Floats:
    """``a ** b``."""
    result = np.power(a, b)
    bad = np.isnan(a) | np.isnan(b) | _overflows(result, a, b) | (np.equal(a, 0) & np.less(b, 0))
    return blank_invalid(bad, result)


def negate_truth(a: Value) -> Floats:
    """``not a``."""
    return blank_invalid(np.isnan(a), np.equal(a, 0))


def _logarithm(a: Value, base: Value = e) -> Floats:
    bad = np.less_equal(a, 0) | np.less_equal(base, 0)
    if base is e:
        return blank_invalid(bad, np.log(a))
    return blank_invalid(bad | np.equal(base, 1), np.log(a) / np.log(base))


def _log2(a: Value) -> Floats:
    return blank_invalid(np.less_equal(a, 0), np.log2(a))


def _log10(a: Value) -> Floats:
    return blank_invalid(np.less_equal(a, 0), np.log10(a))


def _sqrt(a: Value) -> Floats:
    return blank_invalid(np.less(a, 0), np.sqrt(a))


def _checked(function: Callable[..., object]) -> Callable[..., Floats]:
    """A function of Python's ``math``: no value if an operand has none or the result overflows."""

    def checked(*values: Value) -> Floats:
        result = np.asarray(function(*values), np.float64)
        outside = _overflows(result, *values) | np.logical_or.reduce(
            np.broadcast_arrays(*map(np.isnan, values))
        )
        return blank_invalid(outside, result)

    return checked


def _factorial(a: Value) -> Floats:
    whole = np.equal(a, np.floor(a)) & np.greater_equal(a, 0) & np.less(a, _FACTORIALS.shape[0])
    return blank_invalid(~whole, _FACTORIALS[np.where(whole, a, 0).astype(np.int64)])


def _hypotenuse(*values: Value) -> Floats:
    result = np.abs(values[0])
    for one in values[1:]:
        result = np.hypot(result, one)
    missing = np.logical_or.reduce(np.broadcast_arrays(*map(np.isnan, values)))
    return blank_invalid(missing, result)


def _integer_rounding(rounding: Callable[[Value], object]) -> Callable[[Value], Floats]:
    """A rounding to whole numbers, which an infinite number has none of."""
    return lambda a: blank_invalid(np.isinf(a), rounding(a))


def _round(a: Value, digits: Value | None = None) -> Value:
    if digits is None:
        return blank_invalid(np.isinf(a), np.rint(a))
    factor = np.power(10.0, np.clip(np.trunc(digits), -20, 20))
    result = np.rint(np.multiply(a, factor)) / factor
    return np.where(np.isfinite(result) | np.isnan(digits), result, a)


def _least_value(*values: Value) -> Value:
    found = values[0]
    for one in values[1:]:
        found = np.minimum(found, one)
    return found


def _greatest_value(*values: Value) -> Value:
    found = values[0]
    for one in values[1:]:
        found = np.maximum(found, one)
    return found


def choose(condition: Value, yes: Value, no: Value) -> Value:
    """``yes if condition else no``."""
    return blank_invalid(np.isnan(condition), np.where(condition, yes, no))


def first_false(*values: Value) -> Value:
    """The first operand that is 0, or the last one, as in Python."""
    result = values[-1]
    for one in reversed(values[:-1]):
        result = np.where(np.isnan(one) | np.equal(one, 0), one, result)
    return result


def first_true(*values: Value) -> Value:
    """The first operand that is not 0, or the last one, as in Python."""
    result = values[-1]
    for one in reversed(values[:-1]):
        result = np.where(np.isnan(one) | np.not_equal(one, 0), one, result)
    return result


COMPARISONS: Final[Mapping[str, Callable[[Value, Value], object]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


@dataclass(frozen=True, slots=True)
class FormulaFunction:
    """A function, and how many arguments it takes."""

    run: Callable[..., Value]
    least: int = 1
    most: int = 1


_FACTORIALS: Final = np.array([float(factorial(n)) for n in range(171)])
"""Factorials; that of 171 is larger than any float."""
FUNCTIONS: Final[Mapping[str, FormulaFunction]] = {
    "abs": FormulaFunction(np.abs),
    "acos": FormulaFunction(np.arccos),
    "acosh": FormulaFunction(np.arccosh),
    "asin": FormulaFunction(np.arcsin),
    "asinh": FormulaFunction(np.arcsinh),
    "atan": FormulaFunction(np.arctan),
    "atan2": FormulaFunction(np.arctan2, 2, 2),
    "atanh": FormulaFunction(_checked(np.arctanh)),
    "cbrt": FormulaFunction(np.cbrt),
    "ceil": FormulaFunction(_integer_rounding(np.ceil)),
    "copysign": FormulaFunction(_checked(np.copysign), 2, 2),
    "cos": FormulaFunction(np.cos),
    "cosh": FormulaFunction(_checked(np.cosh)),
    "degrees": FormulaFunction(np.degrees),
    "exp": FormulaFunction(_checked(np.exp)),
    "expm1": FormulaFunction(_checked(np.expm1)),
    "fabs": FormulaFunction(np.abs),
    "factorial": FormulaFunction(_factorial),
    "float": FormulaFunction(lambda a: a),
    "floor": FormulaFunction(_integer_rounding(np.floor)),
    "fmod": FormulaFunction(np.fmod, 2, 2),
    "hypot": FormulaFunction(_hypotenuse, 1, 50),
    "int": FormulaFunction(_integer_rounding(np.trunc)),
    "log": FormulaFunction(_logarithm, 1, 2),
    "log10": FormulaFunction(_log10),
    "log1p": FormulaFunction(_checked(np.log1p)),
    "log2": FormulaFunction(_log2),
    "max": FormulaFunction(_greatest_value, 2, 50),
    "min": FormulaFunction(_least_value, 2, 50),
    "pow": FormulaFunction(raise_power, 2, 2),
    "radians": FormulaFunction(np.radians),
    "round": FormulaFunction(_round, 1, 2),
    "sin": FormulaFunction(np.sin),
    "sinh": FormulaFunction(_checked(np.sinh)),
    "sqrt": FormulaFunction(_sqrt),
    "tan": FormulaFunction(np.tan),
    "tanh": FormulaFunction(np.tanh),
    "trunc": FormulaFunction(_integer_rounding(np.trunc)),
}
OPERATORS: Final[Mapping[str, tuple[int, Callable[..., Value]]]] = {
    "+": (1, np.add),
    "-": (1, np.subtract),
    "*": (2, np.multiply),
    "/": (2, _divide),
    "//": (2, _floor_divide),
    "%": (2, _modulo),
}
"""Binary operators with their precedence, all left-associative."""
SIGN_PRECEDENCE: Final = 3  # precedence of a sign


def _least_number(*values: float) -> float:
    return nan if any(map(isnan, values)) else min(values)


def _greatest_number(*values: float) -> float:
    return nan if any(map(isnan, values)) else max(values)


def _single_logarithm(a: float, base: float = e) -> float:
    if base is not e:
        with np.errstate(all="ignore"):
            return _logarithm(np.array([a]), np.array([base])).item()
    return float(np.log(a)) if a > 0 else nan  # not of `math`: its last bit may be another


SINGLE: Final[Mapping[Callable[..., Value], Callable[..., float]]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.negative: lambda a: -a,
    np.abs: abs,
    _divide: lambda a, b: a / b if b != 0 else nan,
    _sqrt: lambda a: sqrt(a) if a >= 0 else nan,
    _logarithm: _single_logarithm,
    _least_value: _least_number,
    _greatest_value: _greatest_number,
    choose: lambda condition, yes, no: nan if isnan(condition) else yes if condition else no,
    negate_truth: lambda a: nan if isnan(a) else float(a == 0),
}
"""The same for single numbers: Python's arithmetic has the same results, in a tenth of the time."""
