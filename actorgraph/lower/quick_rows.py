"""Kernels and rows of our own machine code: products, convolutions, fused elementwise steps.

A *group* is a set of steps of one shape that a single row computes; see `_Grouping`.  Loops always
have groups of functions that give NumPy's bits (`exact`).  All else may change last bits, so
machines use it only with ``jit``:

- a long product, convolution or sum along axes is a step with a `quick_kernel`, in which helper
  threads share the work; in loops it is a row
- a product that is added to a carry accumulates into the carry's memory

Where machine code does not fit an array's layout, NumPy computes as it does without ``jit``.
`loop_table` calls `grouped` and `quickened`; `devices.dense`, `convolving` and `vectors` write the
machine code and know nothing of nodes.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from math import gcd, inf, nan, prod
from time import perf_counter
from typing import Any, NamedTuple, final

import numpy as np

from actorgraph.devices import convolving, dense, native, vectors
from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.helpers import HELPERS
from actorgraph.devices.loops import Routine
from actorgraph.graph import Node
from actorgraph.lower.asking import given_up
from actorgraph.lower.row_groups import LEAST_LANES, RowGroup, rule_of
from actorgraph.lower.row_writing import RowWriter
from actorgraph.lower.seen import node_like, parted
from actorgraph.lower.splitting import spans
from actorgraph.lower.spots import ONCE, Spot, Unfit, broadcast, strides_of
from actorgraph.lower.table_rows import Written
from actorgraph.memory.buffers import fresh, is_view
from actorgraph.op import FRESH_OUT, REGISTRY, LoopRule, Op, bind_attrs, never
from actorgraph.ops import convolution
from actorgraph.ops._arrays import exp_without_warning
from actorgraph.ops._arrays import one as one_like
from actorgraph.ops.windows import frame_of
from actorgraph.scratch import scratch
from actorgraph.tiles import here
from actorgraph.types import bind_shape

_LEAST_ELEMENTS, _LEAST_PASSES = 32, 2
"""Least elements of a group's step, and passes over elements that an exact group must replace."""
_MOST_BYTES = 1 << 20
"""Largest second operand of a product of our own: NumPy is faster for larger ones."""


def _logistic(xp: Any, exponential: Any, out: Any) -> Any:
    number = one_like(xp, exponential)
    return xp.divide(number, xp.add(exponential, number, out=out), out=out)


_GROUP = Op("table_group", "a[*s]", never, memory=FRESH_OUT)
_NEGATED = Op(
    "table_negated", "a[*s] -> a[*s]", np.negative, ufunc="negative", memory=FRESH_OUT,
    loop=LoopRule("value", "negative(x)"),
)  # fmt: skip
_EXP = Op("table_exp", "a[*s] -> a[*s]", exp_without_warning, memory=FRESH_OUT, traced=True)
_LOGISTIC = Op(
    "table_logistic", "a[*s] -> a[*s]", _logistic, memory=FRESH_OUT, traced=True,
    loop=LoopRule("value", "divide(1, add(x, 1))"),
)  # fmt: skip
"""The steps of `sigmoid` in turn: only NumPy's exponential gives NumPy's bits."""
_SIGMOID, _ADD, _TRANSPOSE = REGISTRY["sigmoid"], REGISTRY["add"], REGISTRY["transpose"]


_LEAST_ROW_FLOPS, _LEAST_FLOPS, _SHARED_FLOPS = 2.0**12, 2.0**18, 2.0**21
"""Least operations of a row, of a call of its own, and of a call that helpers share."""

_EACH_FLOPS = 32.0
"""Operations that an element of a sum along axes counts as."""

_MOST_OPERAND, _MOST_CODES = 1 << 26, 512
_BYTES = np.dtype(np.uint8)
_SIZES = {"f": 4, "d": 8}


# -- kernels --------------------------------------------------------------------------------------


def is_along(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a step is a sum along axes that is worth a `quick_kernel`."""
    if step.op.along is None or _describing(step, symbols) is None:
        return False
    seen = []
    for one in step.inputs:
        shape = bind_shape(one.dims, symbols, 0)
        strides = strides_of(shape, one.dtype.itemsize)
        seen.append(_Seen(shape, strides, one.dtype.char, True))
    found = _along(step.op.along, bind_attrs(step.attrs, symbols), *seen)
    return found is not None and found[2] >= _LEAST_FLOPS


def is_quick(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a step is so long that helpers should share it: it is no row then."""
    describe = _describing(step, symbols)
    if describe is None:
        return False
    if step.op.along is not None:
        return _EACH_FLOPS * prod(bind_shape(step.inputs[0].dims, symbols, 0)) >= _SHARED_FLOPS
    shapes = tuple([bind_shape(part.dims, symbols, 0) for part in step.inputs])
    attrs = bind_attrs(step.attrs, symbols)
    return step.op.flops(shapes, bind_shape(step.dims, symbols, 0), attrs) >= _SHARED_FLOPS


def quick_kernel(
    node: Node, plain: Callable[..., Any], symbols: Mapping[str, int], wait: bool
) -> Callable[..., Any]:
    """Return the kernel of a node that uses machine code where it can, else the `plain` one."""
    describe = _describing(node, symbols)
    return plain if describe is None else _Quick(plain, describe, len(node.inputs), wait)


def quick_product(plain: Callable[..., Any], wait: bool) -> Callable[..., Any]:
    """Return a kernel of products that uses machine code where it can, else the `plain` one."""
    return _Quick(plain, _product, 2, wait)


class _Seen(NamedTuple):
    """The layout and dtype of an array; `is_flat` says that it is C-contiguous."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    char: str
    is_flat: bool


@final
class _Quick:
    """A kernel with machine code for each layout of its operands that it meets.

    Code is compiled in the background unless `wait`; until then `ordinary` computes.
    """

    def __init__(
        self, plain: Callable[..., Any], describe: Callable[..., Any], operands: int, wait: bool
    ) -> None:
        self.ordinary, self._describe, self._operands = plain, describe, operands
        self._wait = wait
        self._codes: dict[Any, tuple[_Code | None, tuple[int, ...], bool]] = {}

    def __call__(self, *given: Any, out: Any = None) -> Any:
        if len(given) > self._operands:
            *given, out = given  # type: ignore[assignment]
        key: Any = [(one.shape, one.strides) for one in given]
        key = (*key, None if out is None else out.strides)
        found = self._codes.get(key)
        if found is None:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            found = self._codes[key] = self._made(given, out)
        code, shape, shared = found
        if code is None or code.call is None:
            return self.ordinary(*given, **({} if out is None else {"out": out}))
        result = fresh(shape, given[0].dtype) if out is None else out
        arrays = (*given[: code.operands], result)
        if code.room:
            arrays = (*arrays, scratch(np, (code.room,), _BYTES))
        if shared and _may_share():
            code.share(arrays)
        else:
            code.call((*arrays, dense.ALONE))
        return result if result.ndim else result[()]

    def _made(self, given: Any, out: Any) -> tuple[_Code | None, tuple[int, ...], bool]:
        """Return the code for operands, the shape of the result, and whether helpers share it."""
        if not all(map(_is_known, given)) or len({one.dtype for one in given}) > 1:
            return None, (), False
        found = self._describe(*map(_seen, given), out=None if out is None else _seen(out))
        if found is None or found[2] < _LEAST_FLOPS:
            return None, (), False
        what, shape, flops = found
        return _code(what, self._wait), shape, flops >= _SHARED_FLOPS


def _is_known(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype.char in "fd" and x.nbytes <= _MOST_OPERAND


def _seen(x: Any) -> _Seen:
    return _Seen(x.shape, x.strides, x.dtype.char, x.flags.c_contiguous)


def _may_share() -> bool:
    """Return whether the scheduler of this thread has a free slot for a helper."""
    held = getattr(here, "held", None)
    return held is not None and bool(held[0].free or held[0].tile_slots)


def _product(x: _Seen, y: _Seen, *, out: _Seen | None = None) -> Any:
    """Describe a product: what code computes it, the result's shape, flops; None if none fits."""
    if min(len(x.shape), len(y.shape)) < 2:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    n, depth, m = *x.shape[-2:], y.shape[-1]
    shape = *batch, n, m
    z = strides_of(shape, _SIZES[x.char]) if out is None else out.strides
    if not prod(shape):
        return None
    places = [Spot(0, 0, one.shape[:-2], one.strides[:-2], 0) for one in (x, y)]
    by_x, by_y = [broadcast(place, batch) for place in places]
    stacks = [one for one in zip(batch, by_x, by_y, z[:-2], strict=True) if one[0] > 1]
    # A stack times a single matrix is one tall matrix times it.
    while stacks and stacks[-1][1:] == (n * x.strides[-2], 0, n * z[-2]):
        n *= stacks.pop()[0]
    x_steps, y_steps, z_steps = [(one[-2], one[-1]) for one in (x.strides, y.strides, z)]
    what = dense.Product(x.char, (n, depth, m), x_steps, y_steps, z_steps, tuple(stacks))
    what = what._replace(dots=dense.takes_dots(what))
    return what, shape, 2.0 * prod(shape) * depth


def _convolved(
    kind: str, attrs: Mapping[str, Any], x: _Seen, y: _Seen, *like: _Seen, out: _Seen | None = None
) -> Any:
    """Describe a convolution or an adjoint of one, as `_product` does."""
    if attrs["groups"] != 1 or len(x.shape) not in (3, 4):
        return None
    if any(one is not None and not one.is_flat for one in (x, y, out)):
        return None
    weight = (*attrs["size"],) if kind == "weight" else y.shape[2:]
    sizes, outs = x.shape[2:], attrs["size"]
    if kind == "backward":
        sizes = convolution.sizes_of(x.shape[2:], weight, [one.shape for one in like], attrs)
        outs = x.shape[2:]
    elif kind == "weight":
        outs = y.shape[2:]
    stride, dilation, padding = attrs["stride"], attrs["dilation"], attrs["padding"]
    frame = frame_of(sizes, weight, stride, dilation, padding, outs)
    frames: Any = tuple(map(convolving.Extent._make, zip(*frame, strict=True)))
    batch, features = x.shape[0], y.shape[1] if kind == "weight" else y.shape[0]
    channels = y.shape[1] if kind == "backward" else x.shape[1]
    shape = {
        "forward": (batch, features, *frame.outs), "backward": (batch, channels, *sizes),
        "weight": (features, channels, *weight),
    }[kind]  # fmt: skip
    if 0 in (*shape, *x.shape, *y.shape):
        return None
    frames = (convolving.Extent(1, 1, 1, 1, 1, 0),) * (2 - len(frames)) + frames
    what = convolving.Convolution(kind, x.char, batch, channels, features, frames)
    return what, shape, 2.0 * batch * channels * features * prod(weight) * prod(frame.outs)


def _along(
    how: Any, attrs: Mapping[str, Any], x: _Seen, *others: _Seen, out: _Seen | None = None
) -> Any:
    """Describe a computation with sums along axes, as `_product` does."""
    stages, value, single = how
    axes, shape = attrs["axis"], x.shape
    axes = (axes,) if isinstance(axes, int) else axes
    # Three groups: summed axes before the first kept one, the kept ones, summed axes behind them.
    kept = [i for i, n in enumerate(shape) if n > 1 and i not in axes]
    low, high = (kept[0], kept[-1] + 1) if kept else (0, 0)
    sizes = prod(shape[:low]), prod(shape[low:high]), prod(shape[high:])
    if not attrs.get("centred", True) or 0 in shape:
        return None
    if any(shape[i] > 1 for i in axes if low <= i < high):
        return None
    for one, alone in zip((x, *others, out), single, strict=True):
        count = sizes[1] if alone else prod(shape)
        if one is not None and not (one.is_flat and prod(one.shape) == count):
            return None
    many = sizes[0] * sizes[2]
    numbers = {"n": 1 / many, "eps": attrs.get("eps", 0.0)}
    numbers["f"] = 1 / free if (free := many - attrs.get("ddof", 0)) > 0 else nan
    what = dense.RowSums(x.char, sizes, single, stages, value, tuple(numbers.items()))
    if single[-1]:
        keeps = attrs.get("keepdims", True)
        ends = [1 if i in axes else n for i, n in enumerate(shape) if keeps or i not in axes]
        shape = tuple(ends)
    return what, shape, _EACH_FLOPS * prod(x.shape)


def _describing(node: Node, symbols: Mapping[str, int]) -> Any:
    """Return the function that describes a step's code for its operands, None if there is none."""
    op = node.op
    if op.checked or any(one.dtype.char not in "fd" for one in (node, *node.inputs)):
        return None
    if op.ufunc == "matmul":
        return _product
    attrs, kind, how = bind_attrs(node.attrs, symbols), op.convolves, op.along
    if kind is not None:
        return partial(_convolved, kind, attrs)
    known = how is not None and (node.dtype.char == "f" or "exp(" not in repr(how))
    return partial(_along, how, attrs) if known else None


@final
class _Code:
    """Machine code for a product, a convolution or sums of rows.

    ``call((*operands, result, scratch if it needs any, words of helpers))`` is None until the code
    is compiled; `address` is the same function with the signature of NumPy's inner loops.
    """

    def __init__(self, what: Any) -> None:
        self.call: Callable[[tuple[Any, ...]], int] | None = None
        self.operands = len(what.single) - 1 if isinstance(what, dense.RowSums) else 2
        self.room = self.address = 0  # bytes of scratch memory; the address
        self.what, self._alone_s, self._tries = what, inf, 0

    def make(self) -> None:
        """Write and compile the code; `call` stays None where that fails."""
        try:
            found = _WRITERS[type(self.what)]("dense", self.what)
            if found is not None:
                arrays = self.operands + 1 + bool(found[1])
                text = dense.module_text([found[0], dense.called_text("dense", arrays)])
                self._engine = native.engine(text)
                HELPERS.make()
                self.room = found[1]
                self.address = self._engine.get_function_address("dense")
                kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.py_object)
                self.call = kind(self._engine.get_function_address("call"))
        except Exception as error:  # noqa: BLE001 - NumPy computes instead
            given_up(error)

    def share(self, arrays: tuple[Any, ...]) -> None:
        """Call the code with helpers, unless they slowed down a recent call."""
        global _resting
        assert self.call is not None
        alone = self._tries < _ALONE_TRIES or _resting > 0 or not HELPERS.call()
        began = perf_counter()
        self.call((*arrays, dense.ALONE if alone else HELPERS.words))
        spent = perf_counter() - began
        if alone:
            self._tries, _resting = self._tries + 1, max(0, _resting - 1)
            self._alone_s = min(self._alone_s, spent)
        elif spent > _HINDERED * self._alone_s:  # a helper has lost its core
            _resting = _REST


_ALONE_TRIES, _HINDERED, _REST = 3, 1.5, 200
_resting = 0
"""Calls left that are made without helpers, since a call with them took too long."""

_WRITERS: dict[Any, Callable[..., tuple[str, int] | None]] = {
    dense.Product: dense.product_code, dense.RowSums: dense.rows_code,
    convolving.Convolution: convolving.convolution_code,
}  # fmt: skip


@lru_cache(_MOST_CODES)
def _code(what: Any, wait: bool) -> _Code:
    """Return the code, compiled at once with `wait`, else in the background."""
    found = _Code(what)
    found.make() if wait else BACKGROUND.submit(found.make, keep=found)
    return found


# -- which steps ----------------------------------------------------------------------------------


def quickened(one: Any, fixed: int, symbols: Mapping[str, int]) -> Any:
    """Return an iteration with grouped steps and products of our own; last bits may change.

    The first `fixed` inputs are the same in all iterations; transposed copies of some follow them.
    """
    numbers = count(1 + max([node.id for node in (*one.steps, *one.given)]))
    quick: dict[int, Any] = {}
    later: dict[int, tuple[int, int]] = {}
    steps = _sums(one, quick, later, symbols)
    over = {number: carry for number, carry in one.over.items() if carry.id not in later}
    one = replace(one, over=over, later=later)
    first = {node.id: place for place, node in enumerate(one.given[:fixed])}
    packed: list[tuple[int, Node]] = []
    for place, step in enumerate(steps):
        if _multiplies(step, symbols):
            x, y = step.inputs
            if y.op is _TRANSPOSE and y.inputs[0].id in first and y.ndim == 2:
                of = y.inputs[0]
                y = node_like(y, next(numbers), of.op, ())
                packed.append((first[of.id], y))
                steps[place] = step = node_like(step, step.id, step.op, (x, y))
            quick.setdefault(step.id, _Product(x, y))
    kept = {node.id for node in one.results} | set(one.over)
    steps = parted(steps, kept, symbols, numbers, partial(rule_of, exact=False))
    found = _Grouping(steps, one, symbols, numbers, quick, exact=False).found
    given = [*one.given[:fixed], *[node for _, node in packed], *one.given[fixed:]]
    places = [place for place, _ in packed]
    return replace(one, steps=found, given=given, quick=quick, packed=places, exact=False)


def grouped(one: Any, symbols: Mapping[str, int]) -> Any:
    """Return an iteration with grouped steps where that changes no bit."""
    numbers = count(1 + max([node.id for node in (*one.steps, *one.given)]))
    steps: list[Node] = []
    for step in one.steps:
        last = step
        if step.op is _SIGMOID and rule_of(node_like(step, 0, _LOGISTIC, step.inputs), True):
            for op in (_NEGATED, _EXP):
                steps.append(node_like(step, next(numbers), op, last.inputs))
                last = node_like(step, step.id, _LOGISTIC, (steps[-1],))
        steps.append(last)
    quick: dict[int, Any] = {}
    found = _Grouping(steps, one, symbols, numbers, quick, exact=True).found
    return replace(one, steps=found, quick=quick)


def _multiplies(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a step is a product that our machine code computes."""
    if step.op.ufunc != "matmul" or step.dtype.char not in "fd":
        return False
    shapes = [bind_shape(one.dims, symbols, 0) for one in step.inputs]
    if [len(shape) for shape in shapes] != [2, 2]:
        return False
    size = prod(shapes[1]) * step.dtype.itemsize
    return 0 < size <= _MOST_BYTES and not gcd(shapes[1][1], LEAST_LANES) % LEAST_LANES


def _sums(
    one: Any, quick: dict[int, Any], later: dict[int, tuple[int, int]], symbols: Mapping[str, int],
) -> list[Node]:  # fmt: skip
    """Return the steps, with each product that is added to a carry fused with that addition.

    If both factors are stacked over all iterations, the sum is computed `later`, after the loop, as
    one product of the transposed first factor with the second.
    """
    moving = {node.id: place for place, node in enumerate(one.moving)}
    uses = Counter([part.id for step in one.steps for part in step.inputs])
    uses.update([node.id for node in one.results])
    made = {step.id: step for step in one.steps}
    gone: set[int] = set()
    for number, carry in one.over.items():
        total = made[number].inputs[0]
        if total.op is not _ADD or {uses[total.id], uses[carry.id]} != {1}:
            continue
        terms = [part for part in total.inputs if part is not carry]
        if len(terms) == 1 and uses[terms[0].id] == 1 and _multiplies(terms[0], symbols):
            x, y = terms[0].inputs
            if terms[0].dims == carry.dims and not is_view(y):
                turned = x.inputs[0].id if x.op is _TRANSPOSE else x.id
                if one.asking is None and turned != x.id and {turned, y.id}.issubset(moving):
                    later[carry.id] = moving[turned], moving[y.id]
                    gone.add(number)
                else:
                    made[number] = node_like(made[number], number, terms[0].op, (x, y))
                    quick[number] = _Product(x, y, adds=True)
                gone |= {total.id, terms[0].id}
    return [step for number, step in made.items() if number not in gone]


@dataclass(frozen=True)
class _Product:
    """A product of matrices; if it `adds`, it accumulates into its result."""

    x: Node
    y: Node
    adds: bool = False


class _Grouping:
    """Reorders steps so that each group is contiguous and ends with a step `_GROUP`.

    Greedy: steps of no group as soon as they are ready, then the group of the first ready step.
    """

    def __init__(
        self, steps: Sequence[Node], one: Any, symbols: Mapping[str, int], numbers: Iterator[int],
        quick: dict[int, Any], exact: bool,
    ) -> None:  # fmt: skip
        self._exact = exact
        self._over, self._symbols, self._numbers, self._quick = one.over, symbols, numbers, quick
        self._made = {step.id for step in steps}
        self._of = {step.id: self._kind(step) for step in steps}
        self._shown: dict[int, int] = {}  # id of a view to that of its base
        for step in steps:
            if is_view(step):
                of = step.inputs[0].id
                self._shown[step.id] = self._shown.get(of, of)
        self._readers: dict[int, list[Node]] = {}
        for step in steps:
            for part in step.inputs:
                self._readers.setdefault(self._shown.get(part.id, part.id), []).append(step)
        self._uses = Counter([part.id for step in steps for part in step.inputs])
        self._stored = {node.id for node in one.lasting} | set(one.over)
        self._waiting = list(steps)
        self._done: set[int] = set()
        self.found: list[Node] = []
        while self._waiting:
            before = len(self._waiting)
            self._take([step for step in self._waiting if self._of[step.id] is None])
            self._take_group()
            if len(self._waiting) == before:
                raise Unfit  # carries that depend on one another in a cycle

    def _kind(self, step: Node) -> Any:
        """Return what the steps of a group have in common, None if a step can be in none."""
        if step.id in self._quick or rule_of(step, self._exact) is None:
            return None
        shape = bind_shape(step.dims, self._symbols, 0)
        return (shape, step.dtype.char) if prod(shape) >= _LEAST_ELEMENTS else None

    def _is_ready(self, step: Node, group: Collection[int] = ()) -> bool:
        """Return whether a step can come next, or next in this group.

        Its operands must be computed; all readers of a carry that it overwrites must be done.
        """
        known = self._done.union(group)
        if any(part.id in self._made and part.id not in known for part in step.inputs):
            return False
        carry = self._over.get(step.id)
        return carry is None or all(
            reader is step
            or reader.id in self._done
            or (reader.id in group and not any(part.id in self._shown for part in reader.inputs))
            for reader in self._readers.get(carry.id, ())
        )

    def _take(self, steps: Sequence[Node]) -> None:
        for step in steps:
            if self._is_ready(step):
                self.found.append(step)
                self._done.add(step.id)
        self._waiting = [step for step in self._waiting if step.id not in self._done]

    def _take_group(self) -> None:
        ready = [one for one in self._waiting if self._of[one.id] and self._is_ready(one)]
        # A step whose result no step reads can join a later group.
        first = next((one for one in ready if self._uses[one.id]), ready[0] if ready else None)
        if first is None:
            return
        group: dict[int, Node] = {}
        for step in self._waiting:
            if self._of[step.id] == self._of[first.id] and self._is_ready(step, group):
                group[step.id] = step
        self._waiting = [step for step in self._waiting if step.id not in group]
        self._done |= group.keys()
        rules = [rule_of(step, self._exact) or "" for step in group.values()]
        passes = sum([len(vectors.functions_of(rule) or [rule]) for rule in rules])
        if self._exact and passes < _LEAST_PASSES:
            self.found += group.values()
            return
        inside = Counter([part.id for step in group.values() for part in step.inputs])
        outputs = [
            step for step in group.values()
            if step.id in self._stored or self._uses[step.id] > inside[step.id]
        ]  # fmt: skip
        read = {part.id: part for step in group.values() for part in step.inputs}
        outside = [part for part in read.values() if part.id not in group]
        end = node_like(first, next(self._numbers), _GROUP, (*outside, *outputs))
        self._quick.update(dict.fromkeys(group, None))
        self._quick[end.id] = RowGroup([*group.values()], outside, outputs, self._exact)
        self.found += [*group.values(), end]


# -- rows -----------------------------------------------------------------------------------------


class QuickRows(Written):
    """Rows with groups, and products that accumulate; they keep machine code of groups alive."""

    overwrites = False  # a group computes its steps together

    def __init__(self, one: Any, symbols: Mapping[str, int]) -> None:
        self._quick: dict[int, Any] = dict(one.quick)
        self._texts: list[str] = []
        self._engine: Any = None
        super().__init__(one, symbols)
        self.wrote_all()
        if self._texts:
            text = dense.module_text(self._texts)
            engine = self._engine = native.engine(text)
            for place in range(len(self._texts)):
                self.columns.functions[~place] = engine.get_function_address(f"f{place}")

    def in_another_row(self, step: Node) -> bool:
        """Write the row of a group or product, or none; return whether the step is done."""
        how = self._quick.pop(step.id, step)
        if how is None:
            return True  # computed with its group
        if isinstance(how, _Product):
            return _called(self, step, _product, [how.x, how.y], 0, how.adds)
        if how is step:
            return False
        try:
            text, rows, pointers = how.text(self, f"f{len(self._texts)}")
        except Unfit:
            for one in how.steps:
                self._step(one)
            return True
        to_come = Routine(~len(self._texts), 0, how.exact)
        self._texts.append(text)
        heard = native.ALL_ERRORS if how.exact else 0

        def write(begin: int, end: int) -> None:
            self._add(to_come, (1, 1), (begin, end), (), [], heard)
            spots = []
            for one, wide in pointers:
                low, high = sorted((begin * one.outer, (end - 1) * one.outer))
                spots.append(Spot(one.base, one.offset + low, (high - low + wide,), (1,), 1))
            self.touching(spots[: -len(how.outputs)], spots[-len(how.outputs) :])

        write(0, rows)
        self.in_parts([partial(write, *span) for span in spans(rows, self.parts(step))])
        return True

    def wrote_all(self) -> None:
        """Look at all rows before texts become machine code."""


def code_row(rows: RowWriter, step: Node) -> bool:
    """Write the row of a step's machine code; return whether there is such code."""
    describe = _describing(step, rows.symbols)
    return describe is not None and _called(rows, step, describe, step.inputs, _LEAST_ROW_FLOPS)


def _called(
    rows: RowWriter, step: Node, describe: Any, inputs: Sequence[Node], least: float,
    adds: bool = False,
) -> bool:  # fmt: skip
    """Write the row of a step's machine code; return whether there is such code."""
    places = [*map(rows.place, inputs), rows.places[step.id]]
    chars = [node.dtype.char for node in (*inputs, step)]
    write = partial(_write_call, rows, describe, chars)
    code = write(places, least, {"adds": True} if adds else {})
    if code is None:
        return False
    x, z = places[0], places[-1]
    matrices = step.op.ufunc == "matmul" and len(x.shape) == len(z.shape) == 2
    if matrices and inputs[0] is not inputs[1]:
        same = {"adds": adds, "dots": code.what.dots}  # parts have the bits of the whole
        rows.in_parts([
            partial(write, [_rows_of(x, *span), places[1], _rows_of(z, *span)], 0, same)
            for span in spans(z.shape[0], rows.parts(step))
        ])  # fmt: skip
    return True


def _write_call(
    rows: RowWriter, describe: Any, chars: Sequence[str], places: Sequence[Spot], least: float,
    how: Mapping[str, bool],
) -> _Code | None:  # fmt: skip
    """Write the row of machine code for operands and a result, if there is any, and return that."""
    *given, out = [
        _Seen(one.shape, one.strides, char, one.is_flat)
        for one, char in zip(places, chars, strict=True)
    ]
    found = describe(*given, out=out)
    if found is None or found[2] < least:
        return None
    code = _code(found[0]._replace(**how), True)
    read, written = places[: code.operands], [places[-1]]
    if not code.address or rows.overlaps(places[-1], read):
        return None
    if code.room:
        written.append(rows.scratch((code.room,), _BYTES))
    rows.write(Routine(code.address, 0, owner=code), ONCE, [1], [1], [
        (one, one.offset, [*zip(one.shape, one.strides, strict=True)]) for one in (*read, *written)
    ], 0)  # fmt: skip
    rows.touching(read, written)
    return code


def _rows_of(place: Spot, begin: int, end: int) -> Spot:
    return place._replace(
        offset=place.offset + begin * place.strides[0], shape=(end - begin, *place.shape[1:])
    )
