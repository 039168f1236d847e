"""Expressions of priority formulas: parser, and evaluation over columns of jobs.

The syntax is a subset of Python expressions, as in OpenPBS's ``job_sort_formula``: numbers, names, ``+ - * /
// % **``, comparisons, ``and or not``, ``a if c else b``, parentheses and functions. Names may have dots
(``queue.max_run``). A name may be compared with texts: ``account == "physics"``, ``queue in ("a", "b")``.

Values are 64-bit floats; truth is 1 or 0. Where Python raises an error (division by zero, a logarithm of 0, a
power that overflows), the result is NaN, which means: no value. As in Python, a branch that is not taken has
no effect.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import e, isfinite, pi
from typing import Final

import numpy as np
import numpy.typing as npt

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

Floats = npt.NDArray[np.float64]
Value = Floats | float

MAX_LENGTH: Final = 4096
"""Maximum length of a formula in characters."""
MAX_NODES: Final = 1000
"""Maximum number of operators, numbers, names and calls."""
MAX_DEPTH: Final = 40
"""Maximum nesting."""
MAX_EXPONENT: Final = 1000
"""Maximum of an exponent that is written as a number."""
_MAX_WORDS: Final = 100
_TRUTH: Final = {"True": 1.0, "False": 0.0}
CONSTANTS: Final[Mapping[str, float]] = {"pi": pi, "e": e, **_TRUTH}
_KEYWORDS: Final = frozenset({"and", "or", "not", "if", "else", "in"})
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?[A-Za-z0-9_.]*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<text>"[^"\\\n]*"|'[^'\\\n]*')
      | (?P<operator>\*\*|//|<=|>=|==|!=|[-+*/%()<>,])
      | (?P<end>$)
    )""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(
    r"(?:0+|[1-9][0-9]*|[0-9]+\.[0-9]*|[0-9]*\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
)
_LOOSE_UNDERSCORE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
"""An underscore of a number that is not between two digits."""
_LOOSE_DOT: Final = re.compile(r"\.(?![A-Za-z_])")
"""A dot of a name that begins no further name."""
_REMEDIES: Final[Mapping[str, str]] = {
    "^": "a power is **",
    "&": "use `and`",
    "|": "use `or`",
    "~": "use `not`",
    "=": "to compare, use ==",
    "!": "use `not`, or != to compare",
    "[": "lists are not supported: name each value",
    "{": "dictionaries are not supported: use `a if c else b`",
    "@": "it has no meaning here",
    ":": "functions cannot be defined here",
    "#": "a formula has no comments",
    ";": "a formula is one expression",
    "\\": "a formula is one expression; lines need no \\",
    '"': "a text ends with the same quote, on the same line",
    "'": "a text ends with the same quote, on the same line",
}


class FormulaError(ValueError):
    """A formula that cannot be used, with the column (from 1) and a remedy."""

    def __init__(self, column: int, fault: str, remedy: str) -> None:
        super().__init__(f"column {column}: {fault}; {remedy}")
        self.column = column
        self.fault = fault
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Columns:
    """Values of names for ``size`` jobs. ``numbers`` has each name that is used as a number, ``texts`` each
    name that is compared with texts.
    """

    size: int
    numbers: Mapping[str, Value]
    texts: Mapping[str, Sequence[str]]


class _Node:
    """A part of a formula, at ``[start, end)`` of its text."""

    __slots__ = ("end", "operands", "start")
    start: int
    end: int

    def __init__(self, operands: "Sequence[_Node]" = ()) -> None:
        self.operands = tuple(operands)

    def value(self, columns: Columns, *values: Value) -> Value:
        """Return the value for each job, computed from the operands' ``values``; NaN: no value."""
        raise NotImplementedError


class _Number(_Node):
    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def value(self, _: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        return self.number


class _Name(_Node):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def value(self, columns: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        return columns.numbers[self.name]


class _TextTest(_Node):
    """Test whether a text is in a list of texts, or is not in it."""

    __slots__ = ("name", "wanted", "words")

    def __init__(self, name: str, words: frozenset[str], *, wanted: bool) -> None:
        super().__init__()
        self.name, self.words, self.wanted = name, words, wanted

    def value(self, columns: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        found = [(text in self.words) == self.wanted for text in columns.texts[self.name]]
        return np.array(found, np.float64)


class _Operation(_Node):
    """A function or an operator."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Value], operands: Sequence[_Node]) -> None:
        super().__init__(operands)
        self.run = run

    def value(self, _: Columns, *values: Value) -> Value:
        return self.run(*values)


class _Sum(_Operation):
    """``a + b`` or ``a - b``."""

    __slots__ = ("minus",)
    minus: bool


class _Negative(_Operation):
    """``-a``."""

    __slots__ = ()


class _Comparison(_Node):
    """A chain such as ``a < b <= c``; an operand after the first pair that fails does not count."""

    __slots__ = ("operators",)

    def __init__(self, operands: Sequence[_Node], operators: Sequence[str]) -> None:
        super().__init__(operands)
        self.operators = tuple(operators)

    def value(self, _: Columns, *values: Value) -> Value:
        result: Value = 1.0
        for i in reversed(range(len(self.operators))):
            left, right = values[i], values[i + 1]
            holds = _COMPARE[self.operators[i]](left, right)
            here = _blank_invalid(np.isnan(left) | np.isnan(right), holds)
            result = np.where(here == 1, result, here)
        return result


def _choose(condition: Value, yes: Value, no: Value) -> Value:
    """``yes if condition else no``."""
    return _blank_invalid(np.isnan(condition), np.where(condition, yes, no))


def _and(*values: Value) -> Value:
    """The first operand that is 0, or the last one, as in Python."""
    result = values[-1]
    for one in reversed(values[:-1]):
        result = np.where(np.isnan(one) | np.equal(one, 0), one, result)
    return result


def _or(*values: Value) -> Value:
    """The first operand that is not 0, or the last one, as in Python."""
    result = values[-1]
    for one in reversed(values[:-1]):
        result = np.where(np.isnan(one) | np.not_equal(one, 0), one, result)
    return result


_COMPARE: Final[Mapping[str, Callable[[Value, Value], object]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


# ---- operators and functions ----------------------------------------------------------------------


def _blank_invalid(bad: object, result: object) -> Floats:
    """The result, and NaN where it is bad."""
    found: Floats = np.where(np.asarray(bad), np.nan, np.asarray(result, np.float64))
    return found


def _overflows(result: Value, *operands: Value) -> npt.NDArray[np.bool_]:
    """Where a result is infinite though no operand is: Python raises OverflowError there."""
    finite = [~np.isinf(one) for one in operands]
    found: npt.NDArray[np.bool_] = np.logical_and.reduce(np.broadcast_arrays(np.isinf(result), *finite))
    return found


def _divide(a: Value, b: Value) -> Floats:
    return _blank_invalid(np.equal(b, 0), np.divide(a, b))


def _floor_divide(a: Value, b: Value) -> Floats:
    return _blank_invalid(np.equal(b, 0), np.floor_divide(a, b))


def _modulo(a: Value, b: Value) -> Floats:
    return _blank_invalid(np.equal(b, 0), np.mod(a, b))


def _power(a: Value, b: Value) -> Floats:
    result = np.power(a, b)
    bad = np.isnan(a) | np.isnan(b) | _overflows(result, a, b) | (np.equal(a, 0) & np.less(b, 0))
    return _blank_invalid(bad, result)


def _not(a: Value) -> Floats:
    return _blank_invalid(np.isnan(a), np.equal(a, 0))


def _logarithm(a: Value, base: Value = e) -> Floats:
    bad = np.less_equal(a, 0) | np.less_equal(base, 0)
    if base is e:
        return _blank_invalid(bad, np.log(a))
    return _blank_invalid(bad | np.equal(base, 1), np.log(a) / np.log(base))


def _log2(a: Value) -> Floats:
    return _blank_invalid(np.less_equal(a, 0), np.log2(a))


def _log10(a: Value) -> Floats:
    return _blank_invalid(np.less_equal(a, 0), np.log10(a))


def _sqrt(a: Value) -> Floats:
    return _blank_invalid(np.less(a, 0), np.sqrt(a))


def _exp(a: Value) -> Floats:
    result = np.exp(a)
    return _blank_invalid(_overflows(result, a), result)


def _whole(rounding: Callable[[Value], object]) -> Callable[[Value], Floats]:
    """A rounding to whole numbers, which an infinite number has none of."""
    return lambda a: _blank_invalid(np.isinf(a), rounding(a))


def _round(a: Value, digits: Value | None = None) -> Value:
    if digits is None:
        return _blank_invalid(np.isinf(a), np.rint(a))
    factor = np.power(10.0, np.clip(np.trunc(digits), -20, 20))
    result = np.rint(np.multiply(a, factor)) / factor
    return np.where(np.isfinite(result) | np.isnan(digits), result, a)


def _least(*values: Value) -> Value:
    found = values[0]
    for one in values[1:]:
        found = np.minimum(found, one)
    return found


def _greatest(*values: Value) -> Value:
    found = values[0]
    for one in values[1:]:
        found = np.maximum(found, one)
    return found


@dataclass(frozen=True, slots=True)
class _Function:
    run: Callable[..., Value]
    least: int = 1
    most: int = 1


FUNCTIONS: Final[Mapping[str, _Function]] = {
    "abs": _Function(np.abs),
    "ceil": _Function(_whole(np.ceil)),
    "exp": _Function(_exp),
    "fabs": _Function(np.abs),
    "float": _Function(lambda a: a),
    "floor": _Function(_whole(np.floor)),
    "int": _Function(_whole(np.trunc)),
    "log": _Function(_logarithm, 1, 2),
    "log10": _Function(_log10),
    "log2": _Function(_log2),
    "max": _Function(_greatest, 2, 50),
    "min": _Function(_least, 2, 50),
    "pow": _Function(_power, 2, 2),
    "round": _Function(_round, 1, 2),
    "sqrt": _Function(_sqrt),
    "trunc": _Function(_whole(np.trunc)),
}
_OPERATORS: Final[Mapping[str, tuple[int, Callable[..., Value]]]] = {
    "+": (1, np.add),
    "-": (1, np.subtract),
    "*": (2, np.multiply),
    "/": (2, _divide),
    "//": (2, _floor_divide),
    "%": (2, _modulo),
}
"""Binary operators with their precedence, all left-associative."""
_SIGN: Final = 3


# ---- the parser -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while True:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise FormulaError(
                start + 1,
                f"{text[start]!r} is not part of a formula",
                _REMEDIES.get(text[start], "a formula has numbers, names, operators and functions"),
            )
        kind = str(found.lastgroup)
        token = _Token(kind, found[kind], found.start(kind), found.end(kind))
        if kind == "name" and _LOOSE_DOT.search(token.text):
            raise _fault(
                token, f"{token.text!r} is no name", "a dot stands between two names: server.total_cpus"
            )
        yield token
        if kind == "end":
            return
        place = found.end()


def _fault(token: _Token, fault: str, remedy: str) -> FormulaError:
    return FormulaError(token.start + 1, fault, remedy)


class _Parser:
    """Recursive descent, with precedence climbing for binary operators."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0
        self._nodes = 0

    def parse(self) -> _Node:
        found = self._expression()
        token = self._token
        if token.kind != "end":
            raise _fault(token, f"{token.text!r} does not continue the formula", "an operator is missing")
        return found

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, *words: str) -> str:
        """Consume the next token if it is one of these operators or keywords. Return it, or an empty text."""
        token = self._token
        if token.text in words and token.kind in ("operator", "name"):
            self._next += 1
            return token.text
        return ""

    def _expect(self, word: str, remedy: str) -> None:
        if not self._takes(word):
            token = self._token
            what = f"{token.text!r} stands where {word!r} should be" if token.text else f"{word!r} is missing"
            raise _fault(token, what, remedy)

    def _made(self, node: _Node, start: int) -> _Node:
        node.start, node.end = start, self._tokens[self._next - 1].end
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise FormulaError(start + 1, f"it has more than {MAX_NODES} parts", "shorten it")
        return node

    def _expression(self) -> _Node:
        """``a if c else b``, and all that binds more strongly."""
        start = self._token.start
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FormulaError(start + 1, f"it is nested more than {MAX_DEPTH} times", "simplify it")
        found = self._logic("or")
        if self._takes("if"):
            condition = self._logic("or")
            self._expect("else", "a choice is written: a if c else b")
            found = self._made(_Operation(_choose, [condition, found, self._expression()]), start)
        self._depth -= 1
        return found

    def _logic(self, word: str) -> _Node:
        start = self._token.start
        operands = [self._logic("and") if word == "or" else self._negation()]
        while self._takes(word):
            operands.append(self._logic("and") if word == "or" else self._negation())
        return (
            operands[0]
            if len(operands) == 1
            else self._made(_Operation(_or if word == "or" else _and, operands), start)
        )

    def _negation(self) -> _Node:
        start = self._token.start
        count = 0
        while self._takes("not"):
            count += 1
        found = self._comparison()
        for _ in range(min(count, 2 - count % 2)):
            found = self._made(_Operation(_not, [found]), start)
        return found

    def _comparison(self) -> _Node:
        start = self._token.start
        token = self._token
        if token.kind == "text":
            return self._reversed_text_test(token)
        after = self._tokens[self._next + 1] if token.kind == "name" else token
        if token.kind == "name" and token.text not in _KEYWORDS and self._is_text_test(after):
            return self._text_test(token)
        operands, operators = [self._sum(1)], []
        while operator := self._takes(*_COMPARE):
            operators.append(operator)
            if self._token.kind == "text":
                raise _fault(self._token, "a text is compared with a sum", "compare it with a name alone")
            operands.append(self._sum(1))
        if self._token.text in ("in", "not") and self._token.kind == "name":
            raise _fault(self._token, "only a name can be in a list of texts", 'write: queue in ("a", "b")')
        return operands[0] if not operators else self._made(_Comparison(operands, operators), start)

    def _is_text_test(self, after: _Token) -> bool:
        if after.kind == "name":
            return after.text in ("in", "not")
        return after.text in ("==", "!=") and self._tokens[self._next + 2].kind == "text"

    def _reversed_text_test(self, text: _Token) -> _Node:
        """``"physics" == account``."""
        self._next += 1
        operator = self._takes("==", "!=")
        name = self._token
        if not operator or name.kind != "name" or name.text in {*_KEYWORDS, *CONSTANTS}:
            raise _fault(text, "a text has no number", 'compare it with a name: account == "physics"')
        self._next += 1
        test = _TextTest(name.text, frozenset({text.text[1:-1]}), wanted=operator == "==")
        return self._made(test, text.start)

    def _text_test(self, name: _Token) -> _Node:
        self._next += 1
        operator = self._takes("==", "!=")
        if operator:
            words = [self._text()]
            wanted = operator == "=="
        else:
            wanted = not self._takes("not")
            self._expect("in", 'a list of texts is written: queue in ("a", "b")')
            self._expect("(", 'a list of texts is written: queue in ("a", "b")')
            words = [self._text()]
            while self._takes(",") and self._token.text != ")":
                words.append(self._text())
                if len(words) > _MAX_WORDS:
                    raise _fault(self._token, f"more than {_MAX_WORDS} texts", "shorten the list")
            self._expect(")", "a list ends with )")
        return self._made(_TextTest(name.text, frozenset(words), wanted=wanted), name.start)

    def _text(self) -> str:
        token = self._token
        if token.kind != "text":
            raise _fault(token, "a text in quotes is missing", 'write: account == "physics"')
        self._next += 1
        return token.text[1:-1]

    def _sum(self, least: int) -> _Node:
        """A sum (``least`` 1) or a product (2), by precedence climbing."""
        start = self._token.start
        left = self._signed()
        while True:
            token = self._token
            found = _OPERATORS.get(token.text) if token.kind == "operator" else None
            if found is None or found[0] < least:
                return left
            self._next += 1
            right = self._sum(found[0] + 1) if found[0] + 1 < _SIGN else self._signed()
            left = self._made(_binary(token.text, found[1], left, right), start)

    def _signed(self) -> _Node:
        """A sign binds less strongly than a power: -a**b is -(a**b)."""
        token = self._token
        signs = 0
        while sign := self._takes("-", "+"):
            signs += sign == "-"
        found = self._powered()
        if signs % 2:
            found = self._made(_Negative(np.negative, [found]), token.start)
        return found

    def _powered(self) -> _Node:
        start = self._token.start
        base = self._atom()
        operator = self._token
        if not self._takes("**"):
            return base
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FormulaError(start + 1, f"it is nested more than {MAX_DEPTH} times", "simplify it")
        exponent = self._signed()
        self._depth -= 1
        constant = exponent.operands[0] if isinstance(exponent, _Negative) else exponent
        if isinstance(constant, _Number) and constant.number > MAX_EXPONENT:
            raise _fault(operator, f"an exponent above {MAX_EXPONENT}", "use a smaller one")
        return self._made(_Operation(_power, [base, exponent]), start)

    def _atom(self) -> _Node:
        token = self._token
        if self._takes("("):
            found = self._expression()
            self._expect(")", "a ( has no )")
            return found
        if token.kind == "number":
            self._next += 1
            return self._made(_Number(self._number(token)), token.start)
        if token.kind == "name" and token.text not in _KEYWORDS:
            self._next += 1
            if self._token.text == "(" and self._token.kind == "operator":
                return self._call(token)
            if token.text in CONSTANTS:
                return self._made(_Number(CONSTANTS[token.text]), token.start)
            if token.text in FUNCTIONS:
                raise _fault(token, f"{token.text} is a function", f"write {token.text}(...)")
            if token.text in ("lambda", "for", "is", "None", "import", "yield", "await"):
                raise _fault(token, f"{token.text!r} is not supported", "use operators and functions")
            return self._made(_Name(token.text), token.start)
        if token.kind == "text":
            raise _fault(token, "a text has no number", 'compare it with a name: account == "physics"')
        if token.kind == "end":
            raise _fault(token, "a number, a name or a ( is missing", "complete the formula")
        raise _fault(token, f"{token.text!r} stands where a number, a name or a ( should be", "remove it")

    def _number(self, token: _Token) -> float:
        plain = token.text.replace("_", "")
        if _NUMBER.fullmatch(plain) is None or _LOOSE_UNDERSCORE.search(token.text):
            raise _fault(token, f"{token.text!r} is no number", "write numbers as 3, 0.5 or 1e6")
        number = float(plain)
        if not isfinite(number):
            raise _fault(token, f"{token.text[:20]} is too large", "numbers go up to 1.7e308")
        return number

    def _call(self, name: _Token) -> _Node:
        function = FUNCTIONS.get(name.text)
        if function is None:
            raise _fault(name, f"there is no function {name.text}", f"there are {', '.join(FUNCTIONS)}")
        self._next += 1
        arguments: list[_Node] = []
        while self._token.text != ")":
            arguments.append(self._expression())
            if not self._takes(","):
                break
        self._expect(")", "a call ends with )")
        if not function.least <= len(arguments) <= function.most:
            wanted = (
                str(function.least)
                if function.least == function.most
                else (f"{function.least} to {function.most}")
            )
            raise _fault(name, f"{name.text} has {len(arguments)} arguments", f"it takes {wanted}")
        return self._made(_Operation(function.run, arguments), name.start)


def _binary(operator: str, run: Callable[..., Value], left: _Node, right: _Node) -> _Node:
    if operator not in "+-":
        return _Operation(run, [left, right])
    found = _Sum(run, [left, right])
    found.minus = operator == "-"
    return found


# ---- the result -----------------------------------------------------------------------------------


class Expression:
    """A parsed formula. Immutable; any thread may evaluate it."""

    __slots__ = ("_root", "addends", "names", "text", "text_names")

    def __init__(self, text: str, root: _Node) -> None:
        self.text = text
        self._root = root
        self.names = frozenset(one.name for one in _below(root) if isinstance(one, _Name))
        """Names that are used as numbers."""
        self.text_names = frozenset(one.name for one in _below(root) if isinstance(one, _TextTest))
        """Names that are compared with texts."""
        self.addends = tuple(_addends(root))
        """The parts of the outermost sum, each with its sign; their values add up to the formula's value."""

    def values(self, columns: Columns) -> Floats:
        """Return the value for each job; NaN where there is none. Infinite values are the largest number."""
        return _column(self._root, columns)

    def shares(self, columns: Columns) -> list[tuple[str, Floats]]:
        """Return the text and the values of each addend."""
        return [(self.text[one.start : one.end], sign * _column(one, columns)) for sign, one in self.addends]

    def failing_part(self, columns: Columns) -> str:
        """Return the text of the innermost part without a value for the first job; empty if there is none."""
        with np.errstate(all="ignore"):
            for one, value in _run(self._root, columns):
                if np.isnan(np.ravel(value)[0]):
                    return self.text[one.start : one.end]
        return ""


def parse_formula(text: str) -> Expression:
    """Parse a formula. Raises FormulaError."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(MAX_LENGTH + 1, f"it has more than {MAX_LENGTH} characters", "shorten it")
    return Expression(text, _Parser(text).parse())


def _column(node: _Node, columns: Columns) -> Floats:
    with np.errstate(all="ignore"):
        *_, (_, value) = _run(node, columns)
        found = np.broadcast_to(np.asarray(value, np.float64), (columns.size,))
        largest = np.finfo(np.float64).max
        return np.where(np.isinf(found), np.copysign(largest, found), found)


def _run(root: _Node, columns: Columns) -> Iterator[tuple[_Node, Value]]:
    """The values of all parts, operands first. Without recursion: a sum may have hundreds of addends."""
    stack: list[Value] = []
    for node in _below(root):
        count = len(node.operands)
        values = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        stack.append(node.value(columns, *values))
        yield node, stack[-1]


def _below(root: _Node) -> list[_Node]:
    """All parts in postfix order."""
    found, left = [], [root]
    while left:
        node = left.pop()
        found.append(node)
        left += node.operands
    found.reverse()
    return found


def _addends(root: _Node) -> list[tuple[float, _Node]]:
    found, left = [], [(1.0, root)]
    while left:
        sign, node = left.pop()
        if isinstance(node, _Sum):
            left += [(-sign if node.minus else sign, node.operands[1]), (sign, node.operands[0])]
        elif isinstance(node, _Negative):
            left.append((-sign, node.operands[0]))
        else:
            found.append((sign, node))
    return found
