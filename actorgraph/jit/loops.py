"""The text of a fused step: nested loops in Python that a compiler makes fast.

All values of a group stand at a *level* of its shape: one number for the whole, one for each row (a
stretch along the last axis), or one for each element.  Sums over all, and sums over the rows, come
behind the loops.  A number a row is computed before the loop over the row, so a softmax, which has
sums in the middle, is several short loops over a row that stays in the cache.  What a second loop
needs of the elements of the first is computed anew: the ops here cost less than storing.

A softmax, its logarithm, cross entropy and its gradient share the maximum of a row and the sum of
the exponentials above it, in float64.  Their `exp` is a polynomial that fills vectors (0.8 ns an
element).  That of the C library takes 4 to 50 times as long as NumPy's (0.4 ns), so other ops of
the kind stay NumPy's.

Invariants:

- Names are canonical, so groups of one structure are compiled once.
- Sums are taken in float64.  Only their additions may be reordered, so that they fill vectors
  (2 times faster).
- Loops neither raise nor warn.  They return whether they have computed all; where they have not,
  the ordinary kernels compute the group.

Who calls it: `jit.groups` asks what a loop can compute and `jit.lowering` has the text written,
both in the thread that compiles a plan; `jit.compiler` compiles it in a thread of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import factorial
from typing import NamedTuple

from actorgraph.graph import Node
from actorgraph.op import LoopRule, Op
from actorgraph.types import Dim

Level = str
"""``"whole"``, ``"row"``, ``"element"``, ``"column"``: an input with the last axis only;
``"late"``: one number behind the loops, ``"foot"``: one for each column there."""

DTYPES = {
    "float32": "float32", "float64": "float64", "bool": "bool_", "int32": "int32", "int64": "int64"
}  # fmt: skip
"""The dtypes that loops know, and how their text writes them; integers are classes only."""

_NUMBERS: Mapping[str, str] = {
    "absolute": "abs({0})", "add": "{0} + {1}", "ceil": "ceil({0})", "divide": "{0} / {1}",
    "floor": "floor({0})", "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})",
    "multiply": "{0} * {1}", "negative": "-{0}", "reciprocal": "{T}(1) / {0}", "sign": "sign({0})",
    "sqrt": "sqrt({0})", "square": "{0} * {0}", "subtract": "{0} - {1}", "trunc": "trunc({0})",
    "where": "{1} if {0} else {2}",
}  # fmt: skip
"""How loops write a function of NumPy; results are rounded to the dtype at once, as NumPy does."""

_TESTS: Mapping[str, str] = {
    "equal": "{0} == {1}", "greater": "{0} > {1}", "greater_equal": "{0} >= {1}",
    "isfinite": "{0} - {0} == 0", "isinf": "abs({0}) == inf", "isnan": "{0} != {0}",
    "less": "{0} < {1}", "less_equal": "{0} <= {1}", "logical_and": "{0} & {1}",
    "logical_not": "not {0}", "logical_or": "{0} | {1}", "logical_xor": "{0} ^ {1}",
    "not_equal": "{0} != {1}",
}  # fmt: skip
"""The functions that give bools."""


_OPERANDS = "xyz"


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


@lru_cache(maxsize=256)
def _rule(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def is_written(op: Op) -> bool:
    """Return whether loops can compute the op."""
    if op.loop is None:
        return is_sum(op)
    return op.loop.kind != "value" or _calls_known(op.loop.text)


@lru_cache(maxsize=256)
def _calls_known(text: str) -> bool:
    calls = [one for one in ast.walk(_rule(text)) if isinstance(one, ast.Call)]
    return all(_name(one) in _NUMBERS or _name(one) in _TESTS for one in calls)


def is_view(op: Op) -> bool:
    """Return whether the op changes the shape of a value, not the numbers."""
    return op.loop is not None and op.loop.kind == "view"


def is_sum(op: Op) -> bool:
    """Return whether the op adds up elements along axes, or takes their mean."""
    return op.total in ("sum", "mean") and op.linear == (0,)


def rows_of(op: Op) -> LoopRule | None:
    """Return how the op is computed of the sum of a row's exponentials, None where it is not."""
    return op.loop if op.loop is not None and op.loop.kind == "row" else None


def open_sizes(step: Node) -> list[str]:
    """Return the attributes that the rule of an element reads and only a run knows."""
    return [name for name, value in step.attrs.items() if isinstance(value, Dim)]


def _polynomial() -> str:
    """Return the series of exp up to r ** 12, exact to the last bit of float64 for |r| < 0.35."""
    text = repr(1 / factorial(12))
    for power in range(11, -1, -1):
        text = f"({text} * r + {1 / factorial(power)!r})"
    return text


HEADER = f"""\
from math import log, sqrt
from numba import njit
from numpy import bool_, ceil, float32, float64, floor, inf, int32, int64, trunc, zeros

@njit(fastmath={{"reassoc"}})  # sums may fill vectors
def plus(a, b):
    return a + b

@njit
def maximum(a, b):  # NaN where either is
    return a if (a >= b) | (a != a) else b

@njit
def minimum(a, b):
    return a if (a <= b) | (a != a) else b

@njit
def sign(a):
    return a if a != a else (1 if a > 0 else (-1 if a < 0 else 0))

@njit
def exp(a):  # of what is at most 0, or NaN: 2 ** k times the exponential of the rest
    b = a if a > -708.0 else -708.0
    k = floor(b * 1.4426950408889634 + 0.5)
    r = (b - k * 0.693145751953125) - k * 1.4286068203094172e-06
    power = int64((int64(int32(k)) + 1023) << 52).view(float64)
    e = {_polynomial()} * power
    return e if a > -708.0 else (0.0 if a <= -708.0 else a)

"""
"""What the text of loops may use."""


class LoopParameter(NamedTuple):
    """An array (of so many axes, C-contiguous) or a number (None) that loops are given."""

    dtype: str
    axes: int | None
    writable: bool = False


class Source(NamedTuple):
    """What a compiler needs: the text of ``kernel``, and its parameters; results come last."""

    text: str
    parameters: tuple[LoopParameter, ...]


def write(
    steps: Sequence[Node],
    levels: Mapping[int, Level],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
) -> Source:
    """Return the loops of a group, which return whether they have computed all.

    They do not where sizes do not fit, nothing is there, or a class is none.

    Parameters
    ----------
    steps : sequence of Node
        In order.
    levels : mapping
        Of every step and input, by id.
    inputs : sequence of Node
        What the loops read.  Sizes that only a run knows follow them, in the order of the steps.
    outputs : sequence of Node
        The steps whose values they write.
    """
    writer = _LoopWriter(steps, levels, inputs, outputs)
    text = HEADER + "\n".join(writer.write()) + "\n"
    return Source(text, tuple(writer.parameters))


class _LoopWriter:
    def __init__(
        self,
        steps: Sequence[Node],
        levels: Mapping[int, Level],
        inputs: Sequence[Node],
        outputs: Sequence[Node],
    ) -> None:
        self.steps, self.levels, self.inputs, self.outputs = steps, levels, inputs, outputs
        used = {levels[node.id] for node in (*inputs, *steps)}
        # One loop over all elements, or a loop over rows around it.
        self.rows = bool(used & {"row", "column", "foot"}) or any(
            rows_of(step.op) is not None for step in steps
        )
        self.names: dict[int, str] = {}
        self.sizes: dict[tuple[int, str], str] = {}
        self.summed: dict[int, int] = {}  # number by the id of what has been summed
        self.totals: dict[int, str] = {}
        self.parameters: list[LoopParameter] = []
        self.body: list[str] = []

    def write(self) -> list[str]:
        arguments = self._open()
        self._inputs()
        self._outputs()
        for step in self.steps:
            if self.levels[step.id] == "whole":
                self._assign(step, "    ")
        self._start_totals()
        if self.rows:
            self.body.append("    for i in range(rows):")
        indent = "        " if self.rows else "    "
        self._row_inputs(indent)
        for step in self.steps:
            self._row(step, indent)
        self._elements(indent)
        self._end()
        return [f"def kernel({', '.join(arguments)}):", *self.body, "    return True"]

    # -- what comes in and goes out -------------------------------------------------------------

    def _open(self) -> list[str]:
        arguments = []
        for number, node in enumerate(self.inputs):
            whole = self.levels[node.id] == "whole"
            kind = "float64" if whole and node.dtype.kind == "f" else node.dtype.name
            self.parameters.append(LoopParameter(kind, None if whole else node.ndim))
            arguments.append(f"{'s' if whole else 'x'}{number}")
        for step in self.steps:
            for name in open_sizes(step):
                self.sizes[step.id, name] = f"n{len(self.sizes)}"
                self.parameters.append(LoopParameter("float64", None))
                arguments.append(self.sizes[step.id, name])
        self.parameters += [
            LoopParameter(node.dtype.name, node.ndim, True) for node in self.outputs
        ]
        return [*arguments, *(f"y{number}" for number in range(len(self.outputs)))]

    def _inputs(self) -> None:
        full = next(
            f"x{i}" for i, one in enumerate(self.inputs) if self.levels[one.id] == "element"
        )
        self.body += [f"    if {full}.size == 0:", "        return False"]
        if self.rows:
            self.body += [f"    cols = {full}.shape[-1]", f"    rows = {full}.size // cols"]
        else:
            self.body.append(f"    cols = {full}.size")
        # Views of the sizes are all that stands between the loops and memory of others.
        wrong = [
            f"x{i}.size != {self._size(self.levels[node.id])}"
            for i, node in enumerate(self.inputs)
            if self.levels[node.id] != "whole" and f"x{i}" != full
        ]
        wrong += [
            f"y{i}.size != {self._size(self.levels[node.id])}"
            for i, node in enumerate(self.outputs)
        ]
        self.body += [f"    if {' or '.join(wrong)}:", "        return False"]
        for number, node in enumerate(self.inputs):
            level = self.levels[node.id]
            if level == "whole":
                self.body.append(f"    c{number} = {DTYPES[node.dtype.name]}(s{number})")
                self.names[node.id] = f"c{number}"
            else:
                self.body.append(f"    a{number} = x{number}.reshape({self._shape(level)})")
                self.names[node.id] = f"a{number}[{self._index(level)}]"

    def _outputs(self) -> None:
        for number, node in enumerate(self.outputs):
            shape = self._shape(self.levels[node.id])
            self.body.append(f"    o{number} = y{number}.reshape({shape})")

    def _size(self, level: Level) -> str:
        if level == "element":
            return "rows * cols" if self.rows else "cols"
        return {"row": "rows", "whole": "1", "late": "1"}.get(level, "cols")

    def _shape(self, level: Level) -> str:
        return "(rows, cols)" if level == "element" and self.rows else self._size(level)

    def _index(self, level: Level) -> str:
        if level == "element":
            return "i, j" if self.rows else "j"
        return {"row": "i", "whole": "0", "late": "0"}.get(level, "j")

    # -- loops ----------------------------------------------------------------------------------

    def _start_totals(self) -> None:
        for step in self.steps:
            if self._is_total(step):
                name = self.totals[step.id] = f"t{len(self.totals)}"
                zero = "zeros(cols)" if self.levels[step.id] == "foot" else "0.0"
                self.body.append(f"    {name} = {zero}")

    def _is_total(self, step: Node) -> bool:
        rule = rows_of(step.op)
        sums = is_sum(step.op) if rule is None else rule.picks
        return sums and self.levels[step.id] in ("late", "foot")

    def _row_inputs(self, indent: str) -> None:
        """Read a row's numbers once, which would else be read for each element."""
        for number, node in enumerate(self.inputs):
            if self.levels[node.id] == "row":
                self.body.append(f"{indent}r{number} = a{number}[i]")
                self.names[node.id] = f"r{number}"

    def _row(self, step: Node, indent: str) -> None:
        """Write what the step computes for each row, before the loop over its elements."""
        rule, level = rows_of(step.op), self.levels[step.id]
        if rule is not None:
            self._sum_exponentials(step.inputs[rule.of], indent)
        if rule is not None and rule.classes:
            target = self.names[step.inputs[rule.of + 1].id]
            self.body += [
                f"{indent}if {target} < 0 or {target} >= cols:", f"{indent}    return False"
            ]  # fmt: skip
        if rule is not None and rule.picks:
            self.body.append(f"{indent}j = int64({target})")
            self._computed([step.inputs[rule.of]], indent)
            loss = self._of_row(step, rule)
            if level == "late":
                total = self.totals[step.id]
                self.body.append(f"{indent}{total} = plus({total}, {loss})")
                return
            self._named(step, loss, indent)
        elif level == "row" and is_sum(step.op):
            self.body.append(f"{indent}t = 0.0")
            inside = self._loop(indent, step.inputs)
            self._add("t", step, inside)
            self._named(step, self._total(step, "t", "cols"), indent)
        elif level == "row":
            self._assign(step, indent)
        if level == "row":
            self._store_one(step, indent)

    def _store_one(self, step: Node, indent: str) -> None:
        for number, node in enumerate(self.outputs):
            if node.id == step.id:
                level = self.levels[step.id]
                self.body.append(f"{indent}o{number}[{self._index(level)}] = {self.names[step.id]}")

    def _sum_exponentials(self, x: Node, indent: str) -> None:
        """Write the maximum of a row, and the sum of exponentials of what is above it, once."""
        if x.id in self.summed:
            return
        number = self.summed[x.id] = len(self.summed)
        highest, total = f"m{number}", f"e{number}"
        self.body.append(f"{indent}{highest} = -inf")
        inside = self._loop(indent, [x])
        value = f"float64({self.names[x.id]})"
        self.body += [
            f"{inside}{highest} = {value} if {value} > {highest} else {highest}",
            f"{indent}{total} = 0.0",
        ]
        inside = self._loop(indent, [x])
        self.body.append(f"{inside}{total} = plus({total}, exp({value} - {highest}))")

    def _elements(self, indent: str) -> None:
        """Write the last loop over elements, for results and sums behind it."""
        sums = [one for one in self.steps if one.id in self.totals and is_sum(one.op)]
        ends = [node for node in self.outputs if self.levels[node.id] == "element"]
        if not (sums or ends):
            return
        inside = self._loop(indent, [*ends, *(step.inputs[0] for step in sums)])
        for step in sums:
            total = self.totals[step.id]
            self._add(f"{total}[j]" if self.levels[step.id] == "foot" else total, step, inside)
        for step in ends:
            self._store_one(step, inside)

    def _end(self) -> None:
        """Write what comes behind the loops."""
        for step in self.steps:
            level = self.levels[step.id]
            if level == "foot":
                self.body.append("    for j in range(cols):")
                self.names[step.id] = self._total(step, f"{self.totals[step.id]}[j]", "rows")
                self._store_one(step, "        ")
            elif level in ("late", "whole"):
                if step.id in self.totals:
                    count = self._size("element") if is_sum(step.op) else "rows"
                    self._named(step, self._total(step, self.totals[step.id], count), "    ")
                elif level == "late":
                    self._assign(step, "    ")
                self._store_one(step, "    ")

    def _add(self, total: str, step: Node, indent: str) -> None:
        value = self.names[step.inputs[0].id]
        self.body.append(f"{indent}{total} = plus({total}, float64({value}))")

    @staticmethod
    def _total(step: Node, total: str, count: str) -> str:
        mean = "mean" in (step.op.total, step.attrs.get("reduction"))
        return f"{DTYPES[step.dtype.name]}({total}{f' / ({count})' if mean else ''})"

    def _loop(self, indent: str, ends: Sequence[Node]) -> str:
        """Write a loop over elements up to the values of `ends`; return what indents the rest."""
        self.body.append(f"{indent}for j in range(cols):")
        self._computed(ends, f"{indent}    ")
        return f"{indent}    "

    def _computed(self, ends: Sequence[Node], indent: str) -> None:
        """Write the steps of an element that `ends` are or need."""
        needed = {end.id for end in ends}
        chosen = []
        for step in reversed(self.steps):
            if step.id in needed and self.levels[step.id] == "element":
                needed.update([part.id for part in step.inputs])
                chosen.append(step)
        for step in reversed(chosen):
            self._assign(step, indent)

    # -- expressions ----------------------------------------------------------------------------

    def _assign(self, step: Node, indent: str) -> None:
        if is_view(step.op):
            self.names[step.id] = self.names[step.inputs[0].id]
        else:
            self._named(step, self._expression(step), indent)

    def _named(self, step: Node, expression: str, indent: str) -> None:
        name = self.names.setdefault(step.id, f"v{len(self.names)}")
        self.body.append(f"{indent}{name} = {DTYPES[step.dtype.name]}({expression})")

    def _expression(self, step: Node) -> str:
        rule = step.op.loop
        assert rule is not None, f"{step.op!r} has no rule of an element"
        if rule.kind == "row":
            return self._of_row(step, rule)
        return self._value(step, _rule(rule.text))

    def _value(self, step: Node, rule: ast.expr) -> str:
        """Return the text of a rule of an element, each number rounded to the dtype."""
        dtype = DTYPES[step.dtype.name]
        if isinstance(rule, ast.Constant):
            return f"{dtype}({rule.value!r})"
        if isinstance(rule, ast.Name) and rule.id in _OPERANDS:
            return self.names[step.inputs[_OPERANDS.index(rule.id)].id]
        if isinstance(rule, ast.Name):
            return f"{dtype}({self.sizes.get((step.id, rule.id), step.attrs[rule.id])})"
        assert isinstance(rule, ast.Call), ast.unparse(rule)
        parts = [
            f"{dtype}({text})" if isinstance(part, ast.Call) and _name(part) in _NUMBERS else text
            for part, text in ((part, self._value(step, part)) for part in rule.args)
        ]
        return {**_NUMBERS, **_TESTS}[_name(rule)].format(*parts, T=dtype)

    def _of_row(self, step: Node, rule: LoopRule) -> str:
        operands = [self.names[part.id] for part in step.inputs]
        number = self.summed[step.inputs[rule.of].id]
        share = " / rows" if step.attrs.get("reduction") == "mean" else ""
        return rule.text.format(
            x=f"float64({operands[rule.of]})", m=f"m{number}", e=f"e{number}",
            is_class=f"float64(j == {operands[rule.of + 1]})" if rule.classes else "",
            ct=f"(float64({operands[0]}){share})",
        )  # fmt: skip
