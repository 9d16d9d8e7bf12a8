"""Calls of ops that hypothesis chooses: shapes, axes, broadcasts, options and positions.

``ROWS`` has a strategy of `Drawn` by name of the op or public function, and ``MADE_OF`` the row
that has an op without one.  The rows of a family stand
in a file of their own, ``_drawn_*.py``; here are what they are written with, and the elementwise
ops and those of adjoints, which need no row of their own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import actorgraph as ag
from actorgraph.op import REGISTRY
from actorgraph.testing._cases import Case

ROWS = {}
MADE_OF = {}
"""Ops that the calls of a row of another name are made of."""
LIBRARY = [op for op in REGISTRY.values() if not op.checked]  # the others are ops of tests


@dataclass(frozen=True)
class Drawn:
    """A call, and what it is called with: the fields of `Sample` under the same names.

    Parameters
    ----------
    constants : tuple of int
        Positions of the floats by which nothing is differentiated.
    sizes : {"known", "named", "unknown"}
        What the graph knows of the dims.
    rtol32, rtol_layout : float
        How near float32 is to float64, and one layout to another (0: equal bits).
    second, repeats : bool
        Whether there are derivatives of second order, and of ``f(x, x)``.
    """

    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    low: float = -2.0
    high: float = 2.0
    ints: Any = field(default_factory=dict)
    bools: tuple[int, ...] = ()
    complexes: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    sizes: str = "known"
    rtol32: float = 1e-4
    rtol_layout: float = 1e-12
    second: bool = True
    repeats: bool = True

    def case(self, dtype="float64", repeat=False):
        return Case(None, self, dtype, repeat, self.call, self.sizes)

    @property
    def repeatable(self):
        """Whether one node may be every argument."""
        alike = len(self.shapes) > 1 and len(set(self.shapes)) == 1
        return self.repeats and alike and not (self.ints or self.bools or self.complexes)


def row(*names):
    """Add a strategy to `ROWS`: ``strategy(draw, f)`` with the public function of each name."""

    def add(strategy):
        for name in names:
            assert name not in ROWS
            ROWS[name] = st.composite(strategy)(getattr(ag.ops, name, None))
        return strategy

    return add


def drawn(f, *shapes, options=None, **fields):
    """Return the call of `f` on arrays of these shapes with options by name."""
    return Drawn(partial(f, **options) if options else f, shapes, **fields)


# -- what is drawn ------------------------------------------------------------------------------

flags = st.booleans()
knowledge = st.sampled_from(("known", "named", "unknown"))


def sizes(least=0, most=3):
    return st.integers(least, most)


def shapes(min_dims=0, max_dims=3, least=0, most=3):
    return st.lists(sizes(least, most), min_size=min_dims, max_size=max_dims).map(tuple)


def axis_in(ndim):
    """An axis, counted from either end."""
    return st.integers(-ndim, ndim - 1)


def axes_in(ndim, least=0):
    """Different axes in any order, each counted from either end."""
    orders = st.permutations(range(ndim)).flatmap(
        lambda order: st.integers(min(least, ndim), ndim).map(lambda count: order[:count])
    )
    return orders.flatmap(
        lambda order: st.tuples(*(st.sampled_from((axis, axis - ndim)) for axis in order))
    )


def axes_or_none(ndim):
    """None, an axis, or several: what a reduction takes."""
    one = [axis_in(ndim)] if ndim else []
    return st.one_of(*one, axes_in(ndim), st.none())


def entries_along(shape, axis):
    """How many entries a reduction takes together; None stands for all axes."""
    taken = range(len(shape)) if axis is None else np.atleast_1d(axis).astype(int).tolist()
    return int(np.prod([shape[one] for one in taken]))


def broadcast(count, max_dims=3, least=0):
    """Shapes that broadcast with each other, 0-d and size 0 among them."""
    found = hnp.mutually_broadcastable_shapes(
        num_shapes=count, min_side=least, max_side=3, max_dims=max_dims
    )
    return found.map(lambda found: tuple(found.input_shapes))


@st.composite
def part_of(draw, target):
    """A shape that broadcasts to `target`."""
    cut = draw(st.integers(0, len(target)))
    return tuple(1 if draw(flags) else size for size in target[cut:])


def one_of_results(draw, f, count):
    """Return `f` that gives one of its `count` results."""
    which = draw(st.integers(0, count - 1))

    def result(*nodes, **options):
        return f(*nodes, **options)[which]

    return result


# -- ops that need no row -----------------------------------------------------------------------


def _is_elementwise(op):
    if not isinstance(op.scheme, str):
        return False
    *args, result = op.scheme.split(" -> ")
    rows = [re.fullmatch(r"\w+\[\*(\w)\]", arg) for arg in args]
    return all(rows) and result.endswith(f"[*{'|'.join(row[1] for row in rows if row)}]")


# Attributes of these name an axis.
ALONG_AN_AXIS = (
    "argsort cumprod cumprod_before cumsum deviation log_softmax logcumsumexp roll "
    "running_extreme scan_before softmax sort sparsemax standardize"
).split()
ELEMENTWISE = {op.name: op for op in LIBRARY if _is_elementwise(op)
               and op.name not in ALONG_AN_AXIS}  # fmt: skip
# Of x against x these make a tie or a step, where differences say nothing.
STEPS = ("maximum", "minimum", "fmax", "fmin", "clip", "mod", "fmod", "floor_divide")
# NumPy computes these in the same way for any layout, where no gradient sums over a broadcast.
ANY_LAYOUT = ("add", "subtract", "multiply", "divide", "neg", "abs", "maximum", "minimum", "sign",
              "square", "where", "sqrt", "relu", "floor", "ceil", "trunc")  # fmt: skip


def without_rule(op, count):
    return tuple(i for i in range(count) if not op.has_vjp(i))


@st.composite
def elementwise(draw, op):
    model = draw(st.sampled_from([one for one in op.samples if one.shapes]))
    count = len(model.shapes)
    found = draw(st.one_of(broadcast(count), shapes().map(lambda shape: (shape,) * count)))

    def call(*nodes):
        return nodes[0].graph.apply(op, nodes, model.attrs)

    return Drawn(
        call, found, model.low, model.high, model.ints, model.bools, model.complexes,
        without_rule(op, count), repeats=op.name not in STEPS,
        rtol_layout=0 if op.name in ANY_LAYOUT and len(set(found)) == 1 else 1e-12,
    )  # fmt: skip


@st.composite
def applied(draw, name, choices):
    """The op of a name applied to drawn (shapes, attributes, other fields)."""
    found, attrs, fields = draw(choices)

    def call(*nodes):
        return nodes[0].graph.apply(REGISTRY[name], nodes, attrs)

    fields["constants"] = (*fields.get("constants", ()), *without_rule(REGISTRY[name], len(found)))
    return Drawn(call, found, **fields)


@st.composite
def pulled(draw, name, wrt=0, sizes="known"):
    """The gradient of the call of a row by its argument `wrt`, as a function of all arguments.

    It is made of the adjoint ops of the call, and these obey the laws too.  Where only a run tells
    the sizes no cotangent can be drawn: the result stands for it, so that this is the gradient of
    half the sum of squares.
    """
    inside = draw(ROWS[name])
    sizes = inside.sizes if sizes == "known" else sizes
    y = inside.case()
    if sizes != "known" or None in y.y.shape:

        def square(*nodes):
            y = inside.call(*nodes)
            return ag.gradients([y], [nodes[wrt]], seeds=[y])[0]

        return replace(inside, call=square, sizes=sizes, repeats=False)
    ct_shape, complex_ct = y.shape_of(y.y), y.y.dtype.kind == "c"

    def call(ct, *nodes):
        return ag.gradients([inside.call(*nodes)], [nodes[wrt]], seeds=[ct])[0]

    return replace(
        inside,
        call=call,
        shapes=(ct_shape, *inside.shapes),
        ints={i + 1: bound for i, bound in inside.ints.items()},
        bools=_behind(inside.bools),
        complexes=(*_behind(inside.complexes), *((0,) if complex_ct else ())),
        constants=_behind(inside.constants),
        repeats=False,
    )


def _behind(positions):
    return tuple(i + 1 for i in positions)


ROWS.update({name: elementwise(op) for name, op in ELEMENTWISE.items()})
