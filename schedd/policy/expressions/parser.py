"""Parser of expressions: a tokenizer and recursive descent."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import e, isfinite, pi, tau
from typing import Final

import numpy as np

from schedd.policy.expressions.functions import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    SIGN_PRECEDENCE,
    choose,
    first_false,
    first_true,
    negate_truth,
    raise_power,
)
from schedd.policy.expressions.syntax_tree import (
    ComparisonNode,
    NameNode,
    NegativeNode,
    NumberNode,
    OperationNode,
    SyntaxNode,
    TextTestNode,
    make_binary,
)

MAX_NODES: Final = 1000  # maximum number of operators, numbers, names and calls
MAX_DEPTH: Final = 40  # maximum nesting
MAX_EXPONENT: Final = 1000  # maximum of an exponent that is written as a number
MAX_BITS: Final = 1023  # bits of the largest whole number
_MAX_WORDS: Final = 100
_TRUTH: Final = {"True": 1.0, "False": 0.0}
CONSTANTS: Final[Mapping[str, float]] = {"pi": pi, "e": e, "tau": tau, **_TRUTH}
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
_WHOLE_WITH_BASE: Final = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+")
"""A hexadecimal, octal or binary number."""
_LOOSE_UNDERSCORE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
"""An underscore of a number that is not between two digits."""
_LOOSE_DOT: Final = re.compile(r"\.(?![A-Za-z_])")  # a dot of a name that begins no further name
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


class FormulaParser:
    """Recursive descent, with precedence climbing for binary operators."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0
        self._nodes = 0

    def parse(self) -> SyntaxNode:
        """Return the syntax tree. Raises FormulaError."""
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

    def _made(self, node: SyntaxNode, start: int) -> SyntaxNode:
        node.start, node.end = start, self._tokens[self._next - 1].end
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise FormulaError(start + 1, f"it has more than {MAX_NODES} parts", "shorten it")
        return node

    def _expression(self) -> SyntaxNode:
        """``a if c else b``, and all that binds more strongly."""
        start = self._token.start
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FormulaError(start + 1, f"it is nested more than {MAX_DEPTH} times", "simplify it")
        found = self._logic("or")
        if self._takes("if"):
            condition = self._logic("or")
            self._expect("else", "a choice is written: a if c else b")
            found = self._made(OperationNode(choose, [condition, found, self._expression()]), start)
        self._depth -= 1
        return found

    def _logic(self, word: str) -> SyntaxNode:
        start = self._token.start
        operands = [self._logic("and") if word == "or" else self._negation()]
        while self._takes(word):
            operands.append(self._logic("and") if word == "or" else self._negation())
        return (
            operands[0]
            if len(operands) == 1
            else self._made(OperationNode(first_true if word == "or" else first_false, operands), start)
        )

    def _negation(self) -> SyntaxNode:
        start = self._token.start
        count = 0
        while self._takes("not"):
            count += 1
        found = self._comparison()
        for _ in range(min(count, 2 - count % 2)):
            found = self._made(OperationNode(negate_truth, [found]), start)
        return found

    def _comparison(self) -> SyntaxNode:
        start = self._token.start
        token = self._token
        if token.kind == "text":
            return self._reversed_text_test(token)
        after = self._tokens[self._next + 1] if token.kind == "name" else token
        if token.kind == "name" and token.text not in _KEYWORDS and self._is_text_test(after):
            return self._text_test(token)
        operands, operators = [self._sum(1)], []
        while operator := self._takes(*COMPARISONS):
            operators.append(operator)
            if self._token.kind == "text":
                raise _fault(self._token, "a text is compared with a sum", "compare it with a name alone")
            operands.append(self._sum(1))
        if self._token.text in ("in", "not") and self._token.kind == "name":
            raise _fault(self._token, "only a name can be in a list of texts", 'write: queue in ("a", "b")')
        return operands[0] if not operators else self._made(ComparisonNode(operands, operators), start)

    def _is_text_test(self, after: _Token) -> bool:
        if after.kind == "name":
            return after.text in ("in", "not")
        return after.text in ("==", "!=") and self._tokens[self._next + 2].kind == "text"

    def _reversed_text_test(self, text: _Token) -> SyntaxNode:
        """``"physics" == account``."""
        self._next += 1
        operator = self._takes("==", "!=")
        name = self._token
        if not operator or name.kind != "name" or name.text in {*_KEYWORDS, *CONSTANTS}:
            raise _fault(text, "a text has no number", 'compare it with a name: account == "physics"')
        self._next += 1
        test = TextTestNode(name.text, frozenset({text.text[1:-1]}), wanted=operator == "==")
        return self._made(test, text.start)

    def _text_test(self, name: _Token) -> SyntaxNode:
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
        return self._made(TextTestNode(name.text, frozenset(words), wanted=wanted), name.start)

    def _text(self) -> str:
        token = self._token
        if token.kind != "text":
            raise _fault(token, "a text in quotes is missing", 'write: account == "physics"')
        self._next += 1
        return token.text[1:-1]

    def _sum(self, least: int) -> SyntaxNode:
        """A sum (``least`` 1) or a product (2), by precedence climbing."""
        start = self._token.start
        left = self._signed()
        while True:
            token = self._token
            found = OPERATORS.get(token.text) if token.kind == "operator" else None
            if found is None or found[0] < least:
                return left
            self._next += 1
            right = self._sum(found[0] + 1) if found[0] + 1 < SIGN_PRECEDENCE else self._signed()
            left = self._made(make_binary(token.text, found[1], left, right), start)

    def _signed(self) -> SyntaxNode:
        """A sign binds less strongly than a power: -a**b is -(a**b)."""
        token = self._token
        signs = 0
        while sign := self._takes("-", "+"):
            signs += sign == "-"
        found = self._powered()
        if signs % 2:
            found = self._made(NegativeNode(np.negative, [found]), token.start)
        return found

    def _powered(self) -> SyntaxNode:
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
        constant = exponent.operands[0] if isinstance(exponent, NegativeNode) else exponent
        if isinstance(constant, NumberNode) and constant.number > MAX_EXPONENT:
            raise _fault(operator, f"an exponent above {MAX_EXPONENT}", "use a smaller one")
        return self._made(OperationNode(raise_power, [base, exponent]), start)

    def _atom(self) -> SyntaxNode:
        token = self._token
        if self._takes("("):
            found = self._expression()
            self._expect(")", "a ( has no )")
            return found
        if token.kind == "number":
            self._next += 1
            return self._made(NumberNode(self._number(token)), token.start)
        if token.kind == "name" and token.text not in _KEYWORDS:
            self._next += 1
            if self._token.text == "(" and self._token.kind == "operator":
                return self._call(token)
            if token.text in CONSTANTS:
                return self._made(NumberNode(CONSTANTS[token.text]), token.start)
            if token.text in FUNCTIONS:
                raise _fault(token, f"{token.text} is a function", f"write {token.text}(...)")
            if token.text in ("lambda", "for", "is", "None", "import", "yield", "await"):
                raise _fault(token, f"{token.text!r} is not supported", "use operators and functions")
            return self._made(NameNode(token.text), token.start)
        if token.kind == "text":
            raise _fault(token, "a text has no number", 'compare it with a name: account == "physics"')
        if token.kind == "end":
            raise _fault(token, "a number, a name or a ( is missing", "complete the formula")
        raise _fault(token, f"{token.text!r} stands where a number, a name or a ( should be", "remove it")

    def _number(self, token: _Token) -> float:
        if _WHOLE_WITH_BASE.fullmatch(token.text):
            whole = int(token.text, 0)
            if whole.bit_length() > MAX_BITS:
                raise _fault(token, f"{token.text[:20]} is too large", "numbers go up to 1.7e308")
            return float(whole)
        plain = token.text.replace("_", "")
        if _NUMBER.fullmatch(plain) is None or _LOOSE_UNDERSCORE.search(token.text):
            raise _fault(token, f"{token.text!r} is no number", "write numbers as 3, 0.5 or 1e6")
        number = float(plain)
        if not isfinite(number):
            raise _fault(token, f"{token.text[:20]} is too large", "numbers go up to 1.7e308")
        return number

    def _call(self, name: _Token) -> SyntaxNode:
        function = FUNCTIONS.get(name.text)
        if function is None:
            raise _fault(name, f"there is no function {name.text}", f"there are {', '.join(FUNCTIONS)}")
        self._next += 1
        arguments: list[SyntaxNode] = []
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
        return self._made(OperationNode(function.run, arguments), name.start)
