"""The text of a fused step: nested loops in Python that a compiler makes fast.

All values of a group stand at one of three *levels* of its shape: one number for the whole, one for
each row (a stretch along the last axis), or one for each element.  A number a row is computed
before the loop over the row, so softmax-like forms with sums in the middle are several short loops
over a row that stays in the cache.  What the elements of a second loop need of the first they
compute anew: the ops here cost less than storing.

Functions such as ``exp`` are not among them: the C library's cost 4 to 50 times NumPy's vector
loops (1 ns against 0.3 ns and less an element of float32).  Sums are taken in float64; only their
additions may be reordered, so that they fill vectors (2 times faster), and nothing else is.

Names are canonical, so groups of one form are compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actorgraph.graph import Node
from actorgraph.types import Dim

__all__ = ["DTYPES", "Level", "Parameter", "REDUCTIONS", "Source", "VALUES", "VIEWS", "write"]

Level = str
"""``"whole"``, ``"row"``, ``"element"``, or ``"column"``: an input with the last axis only."""

DTYPES = {"float32": "float32", "float64": "float64", "bool": "bool_"}
"""The dtypes that loops know, and how their text writes them."""

VALUES: Mapping[str, str] = {
    "abs": "abs({0})",
    "add": "{0} + {1}",
    "astype": "{0}",
    "ceil": "ceil({0})",
    "clip": "minimum(maximum({0}, {1}), {2})",
    "cube": "{0} * {0} * {0}",
    "divide": "{0} / {1}",
    "divide_by_size": "{0} / {size}",
    "equal": "{0} == {1}",
    "floor": "floor({0})",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "isfinite": "{0} - {0} == 0",
    "isinf": "abs({0}) == inf",
    "isnan": "{0} != {0}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "logical_and": "{0} & {1}",
    "logical_not": "not {0}",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "multiply": "{0} * {1}",
    "neg": "-{0}",
    "not_equal": "{0} != {1}",
    "reciprocal": "{T}(1) / {0}",
    "relu": "maximum({0}, {T}(0))",
    "rsqrt": "{T}(1) / {T}(sqrt({0}))",
    "sign": "sign({0})",
    "sqrt": "sqrt({0})",
    "square": "{0} * {0}",
    "subtract": "{0} - {1}",
    "trunc": "trunc({0})",
    "where": "{1} if {0} else {2}",
    "where_positive": "{0} if {1} > 0 else {T}(0)",
}
"""Ops of an element by name; each result is rounded to its dtype at once, as NumPy does."""

VIEWS = frozenset({"broadcast_like", "broadcast_to", "expand_dims", "squeeze"})
"""Ops that change the shape of a value, not the numbers."""

REDUCTIONS = frozenset({"mean", "sum"})
"""Ops that loops add up."""

_HEADER = """\
from math import sqrt
from numba import njit
from numpy import bool_, ceil, float32, float64, floor, inf, trunc, zeros

@njit(fastmath={"reassoc"})  # sums may fill vectors
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

"""


class Parameter(NamedTuple):
    """An array (of so many axes, C-contiguous) or a number (None) that loops are given."""

    dtype: str
    axes: int | None


class Source(NamedTuple):
    """What a compiler needs: the text of ``kernel``, and its parameters; the last is the result."""

    text: str
    parameters: tuple[Parameter, ...]


def write(
    steps: Sequence[Node],
    levels: Mapping[int, Level],
    inputs: Sequence[Node],
) -> Source:
    """Return the loops of a group.

    Parameters
    ----------
    steps : sequence of Node
        In order; the last one is the result.
    levels : mapping
        Of every step and input, by id.
    inputs : sequence of Node
        What the loops read.  Sizes that only a run knows follow them, in the order of the steps.
    """
    writer = _Writer(steps, levels, inputs)
    text = _HEADER + "\n".join(writer.write()) + "\n"
    return Source(text, tuple(writer.parameters))


class _Writer:
    def __init__(
        self,
        steps: Sequence[Node],
        levels: Mapping[int, Level],
        inputs: Sequence[Node],
    ) -> None:
        self.steps, self.levels, self.inputs = steps, levels, inputs
        self.root = steps[-1]
        used = {levels[node.id] for node in (*inputs, *steps)}
        # One loop over all elements, or a loop over rows around it.
        self.rows = bool(used & {"row", "column"}) or self._axes() not in ((), self._all())
        self.names: dict[int, str] = {}
        self.sizes: dict[int, str] = {}
        self.parameters: list[Parameter] = []
        self.body: list[str] = []

    def write(self) -> list[str]:
        arguments = self._open()
        self._inputs()
        self._steps_of("whole", "    ")
        sums = self._sums_over()
        if sums == "all":
            self.body.append("    total = 0.0")
        elif sums == "rows":
            self.body.append("    totals = zeros(cols)")
        if self.rows:
            self.body.append("    for i in range(rows):")
        indent = "        " if self.rows else "    "
        self._row_inputs(indent)
        for step in self.steps[:-1]:
            if self.levels[step.id] == "row":
                self._row(step, indent)
        self._root(indent, sums)
        return [f"def kernel({', '.join(arguments)}):", *self.body, "    return True"]

    def _open(self) -> list[str]:
        arguments = []
        for number, node in enumerate(self.inputs):
            whole = self.levels[node.id] == "whole"
            kind = "float64" if whole and node.dtype.kind == "f" else node.dtype.name
            self.parameters.append(Parameter(kind, None if whole else node.ndim))
            arguments.append(f"{'s' if whole else 'x'}{number}")
        for step in self.steps:
            size = step.attrs.get("size") if step.op.name == "divide_by_size" else None
            if isinstance(size, Dim):
                self.sizes[step.id] = f"n{len(self.sizes)}"
                self.parameters.append(Parameter("float64", None))
                arguments.append(self.sizes[step.id])
        self.parameters.append(Parameter(self.root.dtype.name, self.root.ndim))
        return [*arguments, "out"]

    def _inputs(self) -> None:
        full = next(
            f"x{i}" for i, one in enumerate(self.inputs) if self.levels[one.id] == "element"
        )
        if self.rows:
            self.body += [f"    cols = {full}.shape[-1]", f"    rows = {full}.size // cols"]
        else:
            self.body.append(f"    cols = {full}.size")
        shapes = {"element": "(rows, cols)" if self.rows else "cols", "row": "rows"}
        # Views of the sizes are all that stands between the loops and memory of others.
        sizes = {"element": f"{full}.size", "row": "rows"}
        wrong = [
            f"x{i}.size != {sizes.get(self.levels[node.id], 'cols')}"
            for i, node in enumerate(self.inputs)
            if self.levels[node.id] != "whole" and f"x{i}" != full
        ]
        if wrong:
            self.body += [f"    if {' or '.join(wrong)}:", "        return False"]
        for number, node in enumerate(self.inputs):
            level = self.levels[node.id]
            if level == "whole":
                self.body.append(f"    c{number} = {DTYPES[node.dtype.name]}(s{number})")
                self.names[node.id] = f"c{number}"
            else:
                self.body.append(f"    a{number} = x{number}.reshape({shapes.get(level, 'cols')})")
                index = {"element": "i, j" if self.rows else "j", "row": "i"}.get(level, "j")
                self.names[node.id] = f"a{number}[{index}]"

    def _row_inputs(self, indent: str) -> None:
        """Read a row's numbers once, which would else be read for each element."""
        for number, node in enumerate(self.inputs):
            if self.levels[node.id] == "row":
                self.body.append(f"{indent}r{number} = a{number}[i]")
                self.names[node.id] = f"r{number}"

    def _steps_of(self, level: Level, indent: str) -> None:
        for step in self.steps:
            if self.levels[step.id] == level:
                self._assign(step, indent)

    def _row(self, step: Node, indent: str) -> None:
        if step.op.name in REDUCTIONS:
            self.body.append(f"{indent}t = 0.0")
            self._sum(step, indent, "t")
            self.names[step.id] = name = f"v{len(self.names)}"
            self.body.append(f"{indent}{name} = {self._total(step, 't', 'cols')}")
        else:
            self._assign(step, indent)

    def _root(self, indent: str, sums: str) -> None:
        root, kind = self.root, DTYPES[self.root.dtype.name]
        if sums == "rows":
            self._sum(root, indent, "totals[j]")
            self.body += [
                "    o = out.reshape(cols)",
                "    for j in range(cols):",
                f"        o[j] = {self._total(root, 'totals[j]', 'rows')}",
            ]
        elif sums == "all":
            self._sum(root, indent, "total")
            count = "rows * cols" if self.rows else "cols"
            total = self._total(root, "total", count)
            self.body += ["    o = out.reshape(1)", f"    o[0] = {total}"]
        elif sums == "columns":
            self._row(root, indent)
            self._result(f"{indent}o[i] = {self.names[root.id]}", "rows")
        else:
            inside = self._loop(indent, [root])
            place = "i, j" if self.rows else "j"
            text = f"{inside}o[{place}] = {kind}({self._expression(root)})"
            self._result(text, "(rows, cols)" if self.rows else "cols")

    def _result(self, assignment: str, shape: str) -> None:
        """Write to the result, whose view is made before any loop."""
        first = next(i for i, line in enumerate(self.body) if line.lstrip().startswith("for "))
        self.body.insert(first, f"    o = out.reshape({shape})")
        self.body.append(assignment)

    def _sum(self, step: Node, indent: str, total: str) -> None:
        inside = self._loop(indent, [step])
        self.body.append(
            f"{inside}{total} = plus({total}, float64({self.names[step.inputs[0].id]}))"
        )

    @staticmethod
    def _total(step: Node, total: str, count: str) -> str:
        mean = f" / ({count})" if step.op.name == "mean" else ""
        return f"{DTYPES[step.dtype.name]}({total}{mean})"

    def _loop(self, indent: str, ends: Sequence[Node]) -> str:
        """Write a loop over elements with all that the operands of `ends` need."""
        self.body.append(f"{indent}for j in range(cols):")
        inside = f"{indent}    "
        needed = {part.id for end in ends for part in end.inputs}
        chosen = []
        for step in reversed(self.steps[:-1]):
            if step.id in needed and self.levels[step.id] == "element":
                needed.update([part.id for part in step.inputs])
                chosen.append(step)
        for step in reversed(chosen):
            self._assign(step, inside)
        return inside

    def _assign(self, step: Node, indent: str) -> None:
        if step.op.name in VIEWS:
            self.names[step.id] = self.names[step.inputs[0].id]
            return
        expression = self._expression(step)
        name = self.names.setdefault(step.id, f"v{len(self.names)}")
        self.body.append(f"{indent}{name} = {DTYPES[step.dtype.name]}({expression})")

    def _expression(self, step: Node) -> str:
        if step.op.name in VIEWS:
            return self.names[step.inputs[0].id]
        size = f"{DTYPES[step.dtype.name]}({self.sizes.get(step.id, step.attrs.get('size'))})"
        operands = [self.names[part.id] for part in step.inputs]
        return VALUES[step.op.name].format(*operands, size=size, T=DTYPES[step.dtype.name])

    def _all(self) -> tuple[int, ...]:
        return tuple(range(self.root.inputs[0].ndim))

    def _axes(self) -> tuple[int, ...]:
        axes: tuple[int, ...] = self.root.attrs["axis"] if self.root.op.name in REDUCTIONS else ()
        return axes

    def _sums_over(self) -> str:
        """Return what the result is a sum over: all, each row's columns, the rows, or nothing."""
        axes = self._axes()
        if not axes:
            return ""
        if axes == self._all():
            return "all"
        return "columns" if axes == self._all()[-1:] else "rows"
