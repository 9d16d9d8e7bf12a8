"""The LLVM text of a fused step: nested loops, which LLVM's passes vectorise.

Every value of a group has a *level* in its shape: one number for the whole, for each row (the last
axis), or for each element.  Sums over all elements, and sums over rows, are complete behind the
loops.  A number for each row is computed before the loop over the row's elements; so a softmax,
which has sums in the middle, becomes several short loops over a row that stays in the cache.  A
second loop recomputes the elements that it needs of the first: these ops cost less than storing.

A softmax, its logarithm, cross entropy and its gradient share the maximum of a row and the sum of
its exponentials, in float64; exponentials of float32 are computed in float32.

Invariants:

- Names are canonical, so groups of one structure are compiled once; constants are parameters.
- Sums are taken in float64.  Only their additions may be reordered, to vectorise them.
- Loops neither raise nor warn.  They return whether they have computed all; if not, the ordinary
  kernels compute the group.
- No array that is written overlaps another one.

`jit.groups` asks what a loop can compute and `jit.lowering` has the text written, both in the
thread that compiles a plan; `jit.compiler` compiles it in a thread of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from actorgraph.devices import vectors
from actorgraph.devices.listed import CASTS
from actorgraph.devices.vectors import VectorLines
from actorgraph.devices.walk_text import KINDS
from actorgraph.graph import Node
from actorgraph.op import CONSTANT, LoopRule, Op
from actorgraph.types import Dim

Level = str
"""``"whole"``, ``"row"`` or ``"element"``: one number for each; ``"column"``: an input with the
last axis only; ``"late"``: one number behind the loops; ``"foot"``: one for each column there."""

LEVELS = frozenset({"whole", "row", "element", "column", "late", "foot"})

DTYPES = frozenset({"float32", "float64", "bool", "int32", "int64"})
"""Names of the dtypes that loops know."""

_OPERANDS, _POWER = "xyz", "exp(x - m)"
_LOWEST = {"f": -0x7F800001, "d": -0x7FF0000000000001}
"""Minus infinity as an integer of `LoopWriter._in_order`."""

_WIDE = 'noinline "prefer-vector-width"="512"'
"""The widest vectors of the processor: by default LLVM uses half of that."""

_LONG = 64
"""Instructions of a loop above which out-of-order execution does not overlap its iterations."""
_AT_ONCE = """\
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.interleave.count", i32 4}
"""
"""Metadata of long loops: interleave four vectors, since each instruction waits for the last."""


@lru_cache(maxsize=256)
def _rule(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def is_written(step: Node) -> bool:
    """Return whether loops can compute the step."""
    rule = step.op.loop
    if rule is None:
        return is_sum(step.op)
    char = step.dtype.char
    return rule.kind != "value" or vectors.can_write(rule.text, char, tells=char == "?")


def is_view(op: Op) -> bool:
    """Return whether the op changes only the shape of a value."""
    return op.loop is not None and op.loop.kind == "view"


def is_sum(op: Op) -> bool:
    """Return whether the op adds up elements along axes, or takes their mean."""
    return op.total in ("sum", "mean") and op.linear == (0,)


def rows_of(op: Op) -> LoopRule | None:
    """Return the rule of an op that uses the sum of a row's exponentials, None for other ops."""
    return op.loop if op.loop is not None and op.loop.kind == "row" else None


def open_sizes(step: Node) -> list[str]:
    """Return the attributes that are symbolic dims, which the rule of an element may read."""
    return [name for name, value in step.attrs.items() if isinstance(value, Dim)]


class Loops(NamedTuple):
    """The loops of a group, for the compiler.

    `levels` are those of the arrays in order: inputs, ``"numbers"`` (float64), results, and with
    `feet` scratch memory for that many rows of float64.
    """

    text: str  # of ``i1 @loops(ptr %arrays, i64 %rows, i64 %cols)``
    levels: tuple[Level, ...]
    rows: bool  # whether a loop over rows encloses that over elements; else there is one row
    feet: int  # number of sums over rows


class _Value(NamedTuple):
    """A number in a register."""

    name: str
    char: str


class LoopWriter:
    """Writes the loops of a group, which return whether they have computed all.

    They have not if a class index is out of range.  `levels` has the level of every step and input
    by id.  Single constants, which are last in `inputs`, are passed in the array of numbers; sizes
    that are symbolic follow them there, in the order of the steps.
    """

    def __init__(
        self, steps: Sequence[Node], levels: Mapping[int, Level], inputs: Sequence[Node],
        outputs: Sequence[Node],
    ) -> None:  # fmt: skip
        self.steps, self.levels, self.outputs = steps, levels, outputs
        self.constants = [
            node for node in inputs if node.op is CONSTANT and levels[node.id] == "whole"
        ]
        fixed = {node.id for node in self.constants}
        self.inputs = [node for node in inputs if node.id not in fixed]
        self.places = {node.id: place for place, node in enumerate(self.inputs)}
        used = {levels[node.id] for node in (*inputs, *steps)}
        # One loop over all elements, or a loop over rows around it.
        self.rows = bool(used & {"row", "column", "foot"}) or any(
            rows_of(step.op) is not None for step in steps
        )
        self.lines: list[str] = []
        self._by_char = {char: VectorLines(char, 0, self.lines) for char in "fd"}
        self.values: dict[int, _Value] = {}
        self.sizes: dict[tuple[int, str], _Value] = {}
        self.summed: dict[int, tuple[_Value, _Value]] = {}  # maximum and sum, by what is summed
        self.totals: dict[int, str] = {}
        self.starts: list[str] = []
        self.i = self.j = "0"
        self._labels = 0

    def write(self) -> Loops:
        """Return the loops."""
        self._numbers()
        for node in self.inputs:
            if self.levels[node.id] == "whole":
                self.values[node.id] = self._load(node)
        for step in self.steps:
            if self.levels[step.id] == "whole":
                self._assign(step)
        self._start_totals()
        if self.rows:
            with self._loop("%rows") as self.i:
                self._each_row()
        else:
            self._each_row()
        self._end()
        feet = sum(self.levels[number] == "foot" for number in self.totals)
        levels = [self.levels[node.id] for node in self.inputs]
        levels += ["numbers", *[self.levels[node.id] for node in self.outputs]]
        levels += ["feet"] * bool(feet)
        pointers = [f"%a{k}" for k in range(len(levels))]
        declared = ", ".join([f"ptr noalias {one}" for one in pointers])
        text = [
            f"define internal i1 @work({declared}, i64 %rows, i64 %cols) {_WIDE} {{", "entry:",
            *self.starts, *self.lines, "  ret i1 true", "none:", "  ret i1 false", "}",
            "define i1 @loops(ptr %arrays, i64 %rows, i64 %cols) {",
        ]  # fmt: skip
        for k, one in enumerate(pointers):
            text += [f"  {one}.at = getelementptr ptr, ptr %arrays, i64 {k}",
                     f"  {one} = load ptr, ptr {one}.at"]  # fmt: skip
        given = ", ".join([f"ptr {one}" for one in pointers])
        text += [f"  %found = call i1 @work({given}, i64 %rows, i64 %cols)", "  ret i1 %found", "}"]
        text.append(_AT_ONCE)
        return Loops("\n".join(text), tuple(levels), self.rows, feet)

    # -- what comes in and goes out -------------------------------------------------------------

    def _numbers(self) -> None:
        """Load constants and symbolic sizes."""
        at = f"%a{len(self.inputs)}"
        names = [(step.id, name) for step in self.steps for name in open_sizes(step)]
        for place in range(len(self.constants) + len(names)):
            one = self._new(f"getelementptr double, ptr {at}, i64 {place}")
            value = _Value(self._new(f"load double, ptr {one}"), "d")
            if place < len(self.constants):
                node = self.constants[place]
                self.values[node.id] = self._converted(value, node.dtype.char)
            else:
                self.sizes[names[place - len(self.constants)]] = value

    def _at(self, place: int, node: Node) -> str:
        """Return the address of an array's number for the current row and element."""
        level = self.levels[node.id]
        index = {"row": self.i, "whole": "0", "late": "0"}.get(level, self.j)
        if level == "element" and self.rows:
            index = self._new(f"add i64 {self._new(f'mul i64 {self.i}, %cols')}, {self.j}")
        return self._new(f"getelementptr {KINDS[node.dtype.char]}, ptr %a{place}, i64 {index}")

    def _load(self, node: Node) -> _Value:
        char = node.dtype.char
        result = self._new(f"load {KINDS[char]}, ptr {self._at(self.places[node.id], node)}")
        return _Value(self._new(f"icmp ne i8 {result}, 0") if char == "?" else result, char)

    def _store(self, step: Node) -> None:
        for place, node in enumerate(self.outputs, len(self.inputs) + 1):
            if node.id == step.id:
                value, kind = self.values[step.id].name, KINDS[step.dtype.char]
                value = self._new(f"zext i1 {value} to i8") if kind == "i8" else value
                self.lines.append(f"  store {kind} {value}, ptr {self._at(place, node)}")

    # -- loops ----------------------------------------------------------------------------------

    @contextmanager
    def _loop(self, count: str) -> Iterator[str]:
        """Write a loop around the code of the `with` block."""
        name, begin = f"loop{self._labels}", len(self.lines)
        self._labels += 1
        self.starts.append(f"  %{name}.at = alloca i64")
        self.lines += [f"  store i64 0, ptr %{name}.at", f"  br label %{name}", f"{name}:"]
        index = self._new(f"load i64, ptr %{name}.at")
        more = self._new(f"icmp slt i64 {index}, {count}")
        self.lines += [f"  br i1 {more}, label %{name}.body, label %{name}.over", f"{name}.body:"]
        yield index
        after = self._new(f"add nuw nsw i64 {index}, 1")
        metadata = ", !llvm.loop !0" if len(self.lines) - begin > _LONG else ""
        self.lines += [f"  store i64 {after}, ptr %{name}.at", f"  br label %{name}{metadata}",
                       f"{name}.over:"]  # fmt: skip

    @contextmanager
    def _elements(self, ends: Sequence[Node]) -> Iterator[None]:
        """Write a loop over the elements of a row, which computes the values of `ends`."""
        with self._loop("%cols") as self.j:
            self._computed(ends)
            yield

    def _start_totals(self) -> None:
        feet = 0
        for step in self.steps:
            rule, level = rows_of(step.op), self.levels[step.id]
            sums = is_sum(step.op) if rule is None else rule.picks
            if not sums or level not in ("late", "foot"):
                continue
            if level == "late":
                self.totals[step.id] = self._slot("0.0")
                continue
            at = f"%a{len(self.inputs) + len(self.outputs) + 1}"
            begin = self._new(f"mul i64 %cols, {feet}")
            at = self.totals[step.id] = self._new(f"getelementptr double, ptr {at}, i64 {begin}")
            feet += 1
            with self._loop("%cols") as j:
                one = self._new(f"getelementptr double, ptr {at}, i64 {j}")
                self.lines.append(f"  store double 0.0, ptr {one}")

    def _slot(self, value: str, kind: str = "double") -> str:
        """Return the address of a local variable with an initial value."""
        name = f"%slot{len(self.starts)}"
        self.starts.append(f"  {name} = alloca {kind}")
        self.lines.append(f"  store {kind} {value}, ptr {name}")
        return name

    def _add(self, at: str, value: _Value) -> None:
        before = self._new(f"load double, ptr {at}")
        total = self._new(f"fadd reassoc double {before}, {self._converted(value, 'd').name}")
        self.lines.append(f"  store double {total}, ptr {at}")

    def _each_row(self) -> None:
        for node in self.inputs:  # loaded once, not for each element
            if self.levels[node.id] == "row":
                self.values[node.id] = self._load(node)
        for step in self.steps:
            self._row(step)
        sums = [one for one in self.steps if one.id in self.totals and is_sum(one.op)]
        ends = [node for node in self.outputs if self.levels[node.id] == "element"]
        if sums or ends:
            with self._elements([*ends, *(step.inputs[0] for step in sums)]):
                for step in sums:
                    total = self.totals[step.id]
                    if self.levels[step.id] == "foot":
                        total = self._new(f"getelementptr double, ptr {total}, i64 {self.j}")
                    self._add(total, self.values[step.inputs[0].id])
                for step in ends:
                    self._store(step)

    def _row(self, step: Node) -> None:
        """Write what a step computes for each row, before the loop over its elements."""
        rule, level = rows_of(step.op), self.levels[step.id]
        if rule is not None and not rule.classes:
            self._sum_exponentials(step.inputs[rule.of])
        if rule is not None and rule.classes:
            target = self._converted(self.values[step.inputs[rule.of + 1].id], "l").name
            known = self._new(f"icmp ult i64 {target}, %cols")
            label = f"class{self._labels}"
            self._labels += 1
            self.lines += [f"  br i1 {known}, label %{label}, label %none", f"{label}:"]
        if rule is not None and rule.picks:
            self.j = target
            self._computed([step.inputs[rule.of]])
            loss = self._of_row(step, rule)
            if level == "late":
                self._add(self.totals[step.id], loss)
                return
            self._named(step, loss)
        elif level == "row" and is_sum(step.op):
            total = self._slot("0.0")
            with self._elements(step.inputs):
                self._add(total, self.values[step.inputs[0].id])
            self._named(step, self._total(step, total, "%cols"))
        elif level == "row":
            self._assign(step)
        if level == "row":
            self._store(step)

    def _sum_exponentials(self, x: Node) -> None:
        """Write the maximum of a row and the sum of ``exp(x - maximum)``, once for each `x`."""
        if x.id in self.summed:
            return
        char = x.dtype.char if x.dtype.char in "fd" else "d"
        int_kind = "i32" if char == "f" else "i64"
        high = self._slot(str(_LOWEST[char]), int_kind)
        with self._elements([x]):
            value = self._converted(self.values[x.id], char).name
            key = self._in_order(
                self._new(f"bitcast {KINDS[char]} {value} to {int_kind}"), int_kind
            )
            before = self._new(f"load {int_kind}, ptr {high}")
            larger = self._new(f"icmp sgt {int_kind} {key}, {before}")
            found = self._new(f"select i1 {larger}, {int_kind} {key}, {int_kind} {before}")
            self.lines.append(f"  store {int_kind} {found}, ptr {high}")
        bits = self._in_order(self._new(f"load {int_kind}, ptr {high}"), int_kind)
        found = self._new(f"bitcast {int_kind} {bits} to {KINDS[char]}")
        highest, total = self._converted(_Value(found, char), "d").name, self._slot("0.0")
        with self._elements([x]):
            self._add(total, self._power(self.values[x.id], highest))
        found = self._new(f"load double, ptr {total}")
        self.summed[x.id] = _Value(highest, "d"), _Value(found, "d")

    def _in_order(self, bits: str, int_kind: str) -> str:
        """Map the bits of a float to an integer of the same order, or back.

        LLVM vectorises a maximum of integers, but not of floats, which may be NaN.
        """
        last = int(int_kind[1:]) - 1
        sign = self._new(f"ashr {int_kind} {bits}, {last}")
        mask = self._new(f"and {int_kind} {sign}, {2**last - 1}")
        return self._new(f"xor {int_kind} {bits}, {mask}")

    def _power(self, value: _Value, highest: str) -> _Value:
        """Return ``exp(value - highest)`` in the dtype of the value."""
        char = "f" if value.char == "f" else "d"
        text = self._by_char[char]
        given = [self._converted(one, char).name for one in (value, _Value(highest, "d"))]
        return _Value(text.call("exp", text.call("subtract", *given)), char)

    def _end(self) -> None:
        """Write the code behind the loops."""
        for step in self.steps:
            level = self.levels[step.id]
            if level == "foot":
                with self._loop("%cols") as self.j:
                    at = f"getelementptr double, ptr {self.totals[step.id]}, i64 {self.j}"
                    self._named(step, self._total(step, self._new(at), "%rows"))
                    self._store(step)
            elif level in ("late", "whole"):
                if step.id in self.totals:
                    count = self._new("mul i64 %rows, %cols") if is_sum(step.op) else "%rows"
                    self._named(step, self._total(step, self.totals[step.id], count))
                elif level == "late":
                    self._assign(step)
                self._store(step)

    def _total(self, step: Node, at: str, count: str) -> _Value:
        total = self._new(f"load double, ptr {at}")
        if "mean" in (step.op.total, step.attrs.get("reduction")):
            total = self._by_char["d"].call("divide", total, self._as_double(count))
        return _Value(total, "d")

    def _computed(self, ends: Sequence[Node]) -> None:
        """Write the steps of an element that `ends` depend on, and themselves."""
        needed = {end.id for end in ends}
        chosen = []
        for step in reversed(self.steps):
            if step.id in needed and self.levels[step.id] == "element":
                needed.update([part.id for part in step.inputs])
                chosen.append(step)
        for node in self.inputs:
            if node.id in needed and self.levels[node.id] in ("element", "column"):
                self.values[node.id] = self._load(node)
        for step in reversed(chosen):
            self._assign(step)

    # -- expressions ----------------------------------------------------------------------------

    def _new(self, instruction: str) -> str:
        return self._by_char["d"].new(instruction)

    def _as_double(self, whole: str) -> str:
        return self._new(f"sitofp i64 {whole} to double")

    def _converted(self, value: _Value, char: str) -> _Value:
        """Return a number in another dtype."""
        name, given = value
        if given == char:
            return value
        kind, from_ = KINDS[char], "i1" if given == "?" else KINDS[given]
        if char == "?":
            return _Value(self._new(f"fcmp une {from_} {name}, 0.0"), char)
        return _Value(self._new(f"{CASTS[given + char]} {from_} {name} to {kind}"), char)

    def _assign(self, step: Node) -> None:
        if is_view(step.op):
            self.values[step.id] = self.values[step.inputs[0].id]
            return
        rule = step.op.loop
        assert rule is not None, f"{step.op!r} has no rule of an element"
        self._named(step, self._of_row(step, rule) if rule.kind == "row" else self._value(step))

    def _named(self, step: Node, value: _Value) -> None:
        self.values[step.id] = self._converted(value, step.dtype.char)

    def _value(self, step: Node) -> _Value:
        """Return an element of a step; each operation of its rule is rounded to the dtype."""
        given = [self.values[part.id] for part in step.inputs]
        chars = [one.char for one in given if one.char in "fd"]
        char = step.dtype.char if step.dtype.char in "fd" else chars[0] if chars else "f"
        text, rule = self._by_char[char], _rule(step.op.loop.text)  # type: ignore[union-attr]
        if isinstance(rule, ast.Name):
            return given[_OPERANDS.index(rule.id)]
        names = {
            key: one.name if one.char == "?" else self._converted(one, char).name
            for key, one in zip(_OPERANDS, given, strict=False)
        }
        for part in ast.walk(rule):
            if isinstance(part, ast.Name) and part.id in step.attrs:
                size = self.sizes.get((step.id, part.id))
                names[part.id] = (
                    text.number(float(step.attrs[part.id])) if size is None
                    else self._converted(size, char).name
                )  # fmt: skip
        return _Value(text.write(rule, names), "?" if step.dtype.char == "?" else char)

    def _of_row(self, step: Node, rule: LoopRule) -> _Value:
        """Return the value of a step of a row, in float64 except for its exponential."""
        known = {"x": self.values[step.inputs[rule.of].id]}
        if not rule.classes:
            known["m"], known["e"] = self.summed[step.inputs[rule.of].id]
        if _POWER in rule.text:
            known["power"] = self._power(known["x"], known["m"].name)
        names = {name: self._converted(one, "d").name for name, one in known.items()}
        if rule.classes and not rule.picks:
            target = self._converted(self.values[step.inputs[rule.of + 1].id], "l").name
            names["is_class"] = self._new(f"icmp eq i64 {self.j}, {target}")
            names["ct"] = self._converted(self.values[step.inputs[0].id], "d").name
            if step.attrs["reduction"] == "mean":
                rows = self._as_double("%rows")
                names["ct"] = self._by_char["d"].call("divide", names["ct"], rows)
        return _Value(
            self._by_char["d"].write(_rule(rule.text.replace(_POWER, "power")), names), "d"
        )
