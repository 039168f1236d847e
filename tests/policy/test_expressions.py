"""Formulas: their syntax, and their values compared with Python's."""

import ast
import math
import operator
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedd.policy.expressions import FUNCTIONS, MAX_LENGTH, Columns, Expression, FormulaError, parse_formula
from schedd.policy.expressions.parser import MAX_DEPTH, MAX_NODES
from tests.property_examples import examples

NAMES = ("ncpus", "walltime", "eligible_time", "x.y", "zero")


def factorial(number: float) -> int:
    """Factorial of a whole number, as far as it is a float."""
    if number > 170:
        raise OverflowError
    return math.factorial(operator.index(int(number)) if number == int(number) else -1)


PYTHON_FUNCTIONS: Mapping[str, Any] = {
    **{name: getattr(math, name) for name in FUNCTIONS if hasattr(math, name)},
    **{
        name: getattr(__import__("builtins"), name) for name in ("abs", "float", "int", "max", "min", "round")
    },
    "pi": math.pi,
    "e": math.e,
    "tau": math.tau,
    "factorial": factorial,
}


class _AsFloats(ast.NodeTransformer):
    """Numbers as floats, as formulas have them; dotted names as plain ones."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        return (
            ast.Constant(float(value))
            if isinstance(value, int | float) and not isinstance(value, bool)
            else node
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(ast.unparse(node).replace(".", "_"), ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "round" and len(node.args) == 2:
            node.args[1] = ast.Call(ast.Name("int", ast.Load()), [node.args[1]], [])
        return node


def python_value(text: str, values: Mapping[str, float]) -> float | None:
    """What Python makes of the formula; None: an error, or no number."""
    tree = ast.fix_missing_locations(_AsFloats().visit(ast.parse(text.strip(), mode="eval")))
    names = {name.replace(".", "_"): value for name, value in values.items()}
    try:
        found = eval(compile(tree, "formula", "eval"), {"__builtins__": {}}, {**PYTHON_FUNCTIONS, **names})
        found = float(found)
    except (ArithmeticError, ValueError, TypeError):  # a negative number to a fraction is complex
        return None
    return None if math.isnan(found) else max(min(found, 1.7976931348623157e308), -1.7976931348623157e308)


def values_of(
    text: str, rows: list[dict[str, float]], texts: Mapping[str, list[str]] | None = None
) -> list[float]:
    columns = {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    found: list[float] = parse_formula(text).values(Columns(len(rows), columns, texts or {})).tolist()
    return found


def value_of(text: str, **values: float) -> float:
    return values_of(text, [values])[0]


_numbers = st.one_of(
    st.integers(0, 20).map(str),
    st.floats(0, 1e6, allow_nan=False).map(repr),
    st.sampled_from(["0.5", "1e3", "1e308", "3600", "1024", "0", ".25", "2."]),
)
_leaves = st.one_of(_numbers, st.sampled_from(NAMES), st.sampled_from(["pi", "True", "False"]))


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or", "**"]
    one_argument = [name for name, one in FUNCTIONS.items() if one.least == 1 and name not in _UNSTEADY]
    return st.one_of(
        st.tuples(inner, st.sampled_from(two), inner).map(" ".join),
        st.tuples(inner, st.sampled_from(["<", "=="]), inner, st.sampled_from([">", "<="]), inner).map(
            " ".join
        ),
        inner.map(lambda a: f"({a})"),
        inner.map(lambda a: f"-{a}"),
        inner.map(lambda a: f"not {a}").map(lambda a: f"({a})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(st.sampled_from(one_argument), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(st.sampled_from(["min", "max", "pow"]), inner, inner).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
    )


_UNSTEADY: Final = frozenset({"factorial", "fmod", "tan", "sin", "cos", "acos", "asin", "acosh", "atanh"})
"""Functions that turn the last bit of an argument into another value: they are tested with given numbers."""


def _is_accepted(text: str) -> bool:
    """Whether the parser takes it: an exponent that is written as a number has a maximum."""
    try:
        parse_formula(text)
    except FormulaError as error:
        assert "exponent" in error.fault, error
        return False
    return True


formulas = st.recursive(_leaves, _grown, max_leaves=12).filter(_is_accepted)
numbers = st.one_of(st.integers(-1000, 100_000).map(float), st.floats(-1e9, 1e9, allow_nan=False))
rows = st.lists(
    st.fixed_dictionaries(dict.fromkeys(NAMES[:-1], numbers) | {"zero": st.just(0.0)}), min_size=1, max_size=4
)


@given(formulas, rows)
@settings(max_examples=examples(600), deadline=None)
def test_values_are_those_of_python(text: str, jobs: list[dict[str, float]]) -> None:
    for mine, job in zip(values_of(text, jobs), jobs, strict=True):
        theirs = python_value(text, job)
        if theirs is None:
            assert math.isnan(mine), (text, job)
        else:
            assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-300), (text, job)


@given(formulas, rows)
@settings(max_examples=examples(600), deadline=None)
def test_a_single_job_has_the_value_that_it_has_among_others(text: str, jobs: list[dict[str, float]]) -> None:
    """Ranks are compared, so that not even the last bit may differ."""
    among = values_of(text, [*jobs, *jobs])
    for value, job in zip(among, jobs, strict=False):
        (single,) = values_of(text, [job])
        assert np.array_equal(np.float64(single), np.float64(value), equal_nan=True), (text, job)


_edges = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 170.0, 171.0, 709.0, 710.0, -746.0, 1e17, 1e308, -1e308]
    ),
    st.integers(-200, 200).map(float),
    st.floats(-1.5, 1.5),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.sampled_from(sorted(FUNCTIONS)), st.lists(_edges, min_size=2, max_size=3))
@settings(max_examples=examples(1500), deadline=None)
def test_functions_have_the_values_of_python(name: str, numbers: list[float]) -> None:
    function = FUNCTIONS[name]
    assume(function.least <= len(numbers) or function.most < len(numbers))
    values = dict(zip("abc", numbers[: function.most], strict=False))
    assume(name != "round" or len(values) < 2 or abs(values["b"]) < 20)
    text = f"{name}({', '.join(values)})"
    theirs = python_value(text, values)
    mine = value_of(text, **values)
    among = values_of(text, [values, values])[0]
    assert np.array_equal(np.float64(mine), np.float64(among), equal_nan=True), (text, values)
    if theirs is None:
        assert math.isnan(mine), (text, values)
    else:
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-300), (text, values)


@pytest.mark.parametrize(
    "text",
    ["tanh(a)", "hypot(a, 1)", "copysign(1, a)", "atan2(a, 1)", "fmod(a, 2)", "factorial(a)", "cos(a)"],
)
def test_functions_of_no_value_have_no_value(text: str) -> None:
    assert math.isnan(value_of(text.replace("a)", "1 / zero)").replace("a,", "1 / zero,"), zero=0.0))


@pytest.mark.parametrize("text", ["0x1F", "0XfF", "0o17", "0b101", "0x_ff", "0xffff_ffff", "0x" + "f" * 250])
def test_numbers_of_other_bases_are_those_of_python(text: str) -> None:
    assert value_of(text) == float(ast.literal_eval(text))


@pytest.mark.parametrize("text", ["0x", "0xg", "0b2", "0o8", "0x1.5", "0x1__0", "0x" + "f" * 257, "1x1"])
def test_malformed_numbers_of_other_bases_are_refused(text: str) -> None:
    with pytest.raises(FormulaError) as found:
        parse_formula(text)
    assert found.value.column == 1


@given(formulas, rows)
@settings(max_examples=examples(200), deadline=None)
def test_shares_add_up_to_the_value(text: str, jobs: list[dict[str, float]]) -> None:
    columns = Columns(len(jobs), {name: np.array([job[name] for job in jobs]) for name in NAMES}, {})
    formula = parse_formula(text)
    total, shares = formula.values(columns), formula.shares(columns)
    with np.errstate(all="ignore"):
        added = np.sum([share for _, share in shares], axis=0)
        size = np.sum([np.abs(share) for _, share in shares], axis=0)
    fine = np.isfinite(added) & np.isfinite(size) & (np.abs(total) < 1e300) & (size < 1e300)
    assert np.allclose(added[fine], total[fine], rtol=1e-9, atol=1e-9 * np.max(size[fine], initial=1.0))


@given(st.text(alphabet="abn019.()+-*/%<>=!,'\" \n&|^[]{}if else and or not in max", max_size=60))
@settings(max_examples=examples(1500), deadline=None)
def test_hostile_text_is_parsed_or_refused_with_its_column(text: str) -> None:
    try:
        found = parse_formula(text)
    except FormulaError as error:
        assert 1 <= error.column <= len(text) + 1
        assert error.fault
        assert error.remedy
        return
    columns = Columns(2, dict.fromkeys(found.names, 2.0), {name: ["a", "b"] for name in found.text_names})
    assert found.values(columns).shape == (2,)


@given(st.text(max_size=200))
@settings(max_examples=examples(500), deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_formula(text), Expression)
    except FormulaError as error:
        assert str(error).startswith(f"column {error.column}: ")


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "missing"),
        ("ncpus +", 8, "missing"),
        ("ncpus ^ 2", 7, "a power is **"),
        ("2 ncpus", 3, "an operator is missing"),
        ("(ncpus", 7, "')' is missing"),
        ("ncpus)", 6, "does not continue"),
        ("1 if ncpus", 11, "a if c else b"),
        ("gamma(ncpus)", 1, "no function gamma; there are abs, acos"),
        ("__import__('os')", 1, "no function __import__"),
        ("ncpus.__class__()", 1, "no function ncpus.__class__"),
        ("(lambda x: 1)", 10, "functions cannot be defined"),
        ("[1, 2]", 1, "lists are not supported"),
        ("min(1)", 1, "min has 1 arguments; it takes 2 to 50"),
        ("max", 1, "write max(...)"),
        ("012", 1, "no number"),
        ("1" + "0" * 400, 1, "too large"),
        ("2 ** 9999", 3, "an exponent above 1000"),
        ("'phys'", 1, 'account == "physics"'),
        ("(1 + ncpus) == 'a'", 16, "a name alone"),
        ("queue in 5", 10, 'queue in ("a", "b")'),
        ("a = 1", 3, "to compare, use =="),
        ("1 # comment", 3, "no comments"),
        ("1 +" * MAX_NODES + "1", None, f"more than {MAX_NODES} parts"),
        ("(" * 2 * MAX_DEPTH + "1" + ")" * 2 * MAX_DEPTH, None, f"nested more than {MAX_DEPTH} times"),
        ("2" + "**2" * 2 * MAX_DEPTH, None, f"nested more than {MAX_DEPTH} times"),
        ("1" * (MAX_LENGTH + 1), MAX_LENGTH + 1, f"more than {MAX_LENGTH} characters"),
    ],
)
def test_unusable_value_is_refused_with_column_and_remedy(text: str, column: int | None, says: str) -> None:
    with pytest.raises(FormulaError) as error:
        parse_formula(text)
    assert says in str(error.value)
    assert column is None or error.value.column == column


def test_errors_have_no_value_and_only_branches_that_are_taken_count() -> None:
    assert math.isnan(value_of("1 / zero", zero=0.0))
    assert math.isnan(value_of("log(zero)", zero=0.0))
    assert math.isnan(value_of("10.0 ** 308 ** 2"))
    assert value_of("1 / zero if zero else 7", zero=0.0) == 7
    assert value_of("zero and 1 / zero", zero=0.0) == 0
    assert value_of("1 or 1 / zero", zero=0.0) == 1
    assert value_of("1e308 * 10") == 1.7976931348623157e308


def test_names_are_compared_with_texts() -> None:
    texts = {"account": ["phys", "chem"], "queue": ["a", "b"]}
    jobs: list[dict[str, float]] = [{}, {}]
    text = "10 * (account == 'phys') + (queue in ('b', \"c\")) + 100 * ('chem' != account)"
    assert values_of(text, jobs, texts) == [110, 1]
    assert values_of("queue not in ('b',)", jobs, texts) == [1, 0]


def test_a_long_sum_is_evaluated() -> None:
    assert value_of("+".join(["1"] * (MAX_NODES // 2))) == MAX_NODES // 2


def test_failing_part_is_one_that_is_used() -> None:
    formula = parse_formula("(log(zero - 1) if zero else 1) + (0 and 1 / zero) + log(ncpus - 9)")
    assert formula.failing_part(Columns(1, {"ncpus": 1.0, "zero": 0.0}, {})) == "log(ncpus - 9)"
    formula = parse_formula("log(zero - 1) if zero else 1 / zero")
    assert formula.failing_part(Columns(1, {"zero": 0.0}, {})) == "1 / zero"
    assert formula.failing_part(Columns(1, {"zero": 0.5}, {})) == "log(zero - 1)"


def test_failing_part_is_the_innermost_one() -> None:
    formula = parse_formula("ncpus + 2 * log(zero - 1) / 3")
    assert formula.failing_part(Columns(1, {"ncpus": 1.0, "zero": 0.0}, {})) == "log(zero - 1)"
    assert formula.failing_part(Columns(1, {"ncpus": 1.0, "zero": 2.0}, {})) == ""
