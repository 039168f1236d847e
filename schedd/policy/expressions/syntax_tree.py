"""Syntax tree of an expression, and its evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign, isinf, isnan, nan
from typing import Final, NamedTuple

import numpy as np

from schedd.policy.expressions.functions import COMPARISONS, SINGLE, Floats, Value, blank_invalid
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True)
class Columns:
    """Values of names for ``size`` jobs. ``numbers`` has each name that is used as a number, ``texts`` each
    name that is compared with texts.
    """

    size: int
    numbers: Mapping[str, Value]
    texts: Mapping[str, Sequence[str]]


class SyntaxNode:
    """A part of a formula, at ``[start, end)`` of its text."""

    __slots__ = ("end", "is_constant", "operands", "start")
    start: int
    end: int
    is_constant: bool

    def __init__(self, operands: "Sequence[SyntaxNode]" = (), *, constant: bool = True) -> None:
        self.operands = tuple(operands)
        self.is_constant = constant and all(one.is_constant for one in self.operands)
        """The value is a single number for any jobs."""

    def value(self, columns: Columns, *values: Value) -> Value:
        """Return the value for each job, computed from the operands' ``values``; NaN: no value."""
        raise NotImplementedError

    def single_value(self, columns: Columns, values: Sequence[float]) -> float:
        """Return the value for the only job: with the types that operands have for several jobs, since NumPy
        computes powers of single numbers otherwise.
        """
        typed = [
            value if one.is_constant else np.array([value])
            for one, value in zip(self.operands, values, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = self.value(columns, *typed)
        return found.item() if isinstance(found, np.ndarray) else float(found)


class NumberNode(SyntaxNode):
    """A number."""

    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def value(self, _: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        return self.number

    def single_value(self, _columns: Columns, _values: Sequence[float]) -> float:
        return self.number


class NameNode(SyntaxNode):
    """The value of a name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(constant=False)
        self.name = name

    def value(self, columns: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        return columns.numbers[self.name]

    def single_value(self, columns: Columns, _: Sequence[float]) -> float:
        number = columns.numbers[self.name]
        return number.item() if isinstance(number, np.ndarray) else float(number)


class TextTestNode(SyntaxNode):
    """Test whether a text is in a list of texts, or is not in it."""

    __slots__ = ("name", "wanted", "words")

    def __init__(self, name: str, words: frozenset[str], *, wanted: bool) -> None:
        super().__init__(constant=False)
        self.name, self.words, self.wanted = name, words, wanted

    def value(self, columns: Columns, *values: Value) -> Value:  # noqa: ARG002  (it has no operands)
        found = [(text in self.words) == self.wanted for text in columns.texts[self.name]]
        return np.array(found, np.float64)

    def single_value(self, columns: Columns, _: Sequence[float]) -> float:
        return float((columns.texts[self.name][0] in self.words) == self.wanted)


class OperationNode(SyntaxNode):
    """A function or an operator."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Value], operands: Sequence[SyntaxNode]) -> None:
        super().__init__(operands)
        self.run = run

    def value(self, _: Columns, *values: Value) -> Value:
        return self.run(*values)


class SumNode(OperationNode):
    """``a + b`` or ``a - b``."""

    __slots__ = ("minus",)
    minus: bool


class NegativeNode(OperationNode):
    """``-a``."""

    __slots__ = ()


class ComparisonNode(SyntaxNode):
    """A chain such as ``a < b <= c``; an operand after the first pair that fails does not count."""

    __slots__ = ("operators",)

    def __init__(self, operands: Sequence[SyntaxNode], operators: Sequence[str]) -> None:
        super().__init__(operands)
        self.operators = tuple(operators)

    def value(self, _: Columns, *values: Value) -> Value:
        result: Value = 1.0
        for i in reversed(range(len(self.operators))):
            left, right = values[i], values[i + 1]
            holds = COMPARISONS[self.operators[i]](left, right)
            here = blank_invalid(np.isnan(left) | np.isnan(right), holds)
            result = np.where(here == 1, result, here)
        return result

    def single_value(self, _: Columns, values: Sequence[float]) -> float:
        for i, operator in enumerate(self.operators):
            left, right = values[i], values[i + 1]
            if isnan(left) or isnan(right):
                return nan
            if not COMPARISONS[operator](left, right):
                return 0.0
        return 1.0


def make_binary(operator: str, run: Callable[..., Value], left: SyntaxNode, right: SyntaxNode) -> SyntaxNode:
    if operator not in "+-":
        return OperationNode(run, [left, right])
    found = SumNode(run, [left, right])
    found.minus = operator == "-"
    return found


_LARGEST: Final = float(np.finfo(np.float64).max)


def column_values(parts: Sequence[SyntaxNode], columns: Columns) -> Floats:
    """Return the value of the last of these parts, which are in postfix order, for each job; infinite values
    are the largest number.
    """
    stack: list[Value] = []
    with np.errstate(all="ignore"):
        for node in parts:
            begin = len(stack) - len(node.operands)
            stack[begin:] = (node.value(columns, *stack[begin:]),)
        found = np.broadcast_to(np.asarray(stack[-1], np.float64), (columns.size,))
        infinite = np.isinf(found)
        return np.where(infinite, np.copysign(_LARGEST, found), found) if infinite.any() else found.copy()


class StackStep(NamedTuple):
    """A step of the evaluation for one job: it replaces ``taken`` numbers of a stack by one."""

    taken: int
    run: Callable[..., float] | None
    """A function of plain numbers; None: see ``node``."""
    node: SyntaxNode
    number: float | None
    """The value of a number; None: it is none."""
    name: str
    """The name of a column; empty: it is none."""


def list_steps(parts: Sequence[SyntaxNode]) -> tuple[StackStep, ...]:
    """Return the steps of ``single_value`` for these parts, which are in postfix order."""
    return tuple(
        StackStep(
            len(one.operands),
            SINGLE.get(one.run) if isinstance(one, OperationNode) else None,
            one,
            one.number if isinstance(one, NumberNode) else None,
            one.name if isinstance(one, NameNode) else "",
        )
        for one in parts
    )


def single_value(steps: Sequence[StackStep], columns: Columns) -> float:
    """Return the value for the only job, which an arrival needs: the same as of ``column_values``, without
    arrays where Python's arithmetic is the same.
    """
    stack: list[float] = []
    push, pop = stack.append, stack.pop
    numbers = columns.numbers
    for taken, run, node, number, name in steps:
        if number is not None:
            push(number)
        elif name:
            known = numbers[name]
            push(known if type(known) is float else node.single_value(columns, ()))
        elif not taken:
            push(node.single_value(columns, ()))
        elif run is None:
            stack[-taken:] = (node.single_value(columns, stack[-taken:]),)
        elif taken == 2:
            last = pop()
            stack[-1] = run(stack[-1], last)
        else:
            stack[-taken:] = (run(*stack[-taken:]),)
    value = stack[-1]
    return copysign(_LARGEST, value) if isinf(value) else value


def find_cause(parts: Sequence[SyntaxNode], columns: Columns) -> SyntaxNode | None:
    """Return the innermost of these parts, in postfix order, that leaves the last without a value for the
    first job; None: it has one. A part that is not used, as in ``1 if 1 else part``, is no cause.

    Without recursion: a sum may have hundreds of addends.
    """
    stack: list[Value] = []
    operands: dict[SyntaxNode, list[Value]] = {}
    for node in parts:
        begin = len(stack) - len(node.operands)
        operands[node] = stack[begin:]
        stack[begin:] = (node.value(columns, *operands[node]),)
    cause = parts[-1]
    if not _is_missing(stack[-1]):
        return None
    while (used := _failing_operand(cause, columns, operands[cause])) is not None:
        cause = used
    return cause


def _failing_operand(node: SyntaxNode, columns: Columns, values: Sequence[Value]) -> SyntaxNode | None:
    """Return the first operand without a value that suffices for the node to have none; None: no operand."""
    for i, one in enumerate(values):
        others = [other if i == k or not _is_missing(other) else 1.0 for k, other in enumerate(values)]
        if _is_missing(one) and _is_missing(node.value(columns, *others)):
            return node.operands[i]
    return None


def _is_missing(value: Value) -> bool:
    return bool(np.isnan(np.ravel(value)[0]))


def list_parts(root: SyntaxNode) -> list[SyntaxNode]:
    """All parts in postfix order."""
    found, left = [], [root]
    while left:
        node = left.pop()
        found.append(node)
        left += node.operands
    found.reverse()
    return found


def list_addends(root: SyntaxNode) -> list[tuple[float, SyntaxNode]]:
    """Return the addends of the outermost sum, each with its sign."""
    found, left = [], [(1.0, root)]
    while left:
        sign, node = left.pop()
        if isinstance(node, SumNode):
            left += [(-sign if node.minus else sign, node.operands[1]), (sign, node.operands[0])]
        elif isinstance(node, NegativeNode):
            left.append((-sign, node.operands[0]))
        else:
            found.append((sign, node))
    return found
