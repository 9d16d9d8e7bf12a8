"""Drawn calls of ops that move entries: shapes, order, parts, borders, diagonals."""

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import (
    MADE_OF,
    ROWS,
    applied,
    axes_in,
    axis_in,
    drawn,
    flags,
    knowledge,
    one_of_results,
    part_of,
    pulled,
    row,
    shapes,
    sizes,
)


@row("broadcast_to")
def broadcast_to(draw, f):
    target = draw(shapes())
    return drawn(f, draw(part_of(target)), options={"shape": target})


@row("broadcast_like")
def broadcast_like(draw, f):
    target = draw(shapes())
    return drawn(f, draw(part_of(target)), target, sizes=draw(knowledge))


@row("expand_dims")
def expand_dims(draw, f):
    shape = draw(shapes())
    ndim = len(shape) + draw(sizes(1, 2))
    axis = draw(axes_in(ndim))[: ndim - len(shape)]
    while len(axis) < ndim - len(shape):
        axis += (next(i for i in range(ndim) if i not in {one % ndim for one in axis}),)
    return drawn(f, shape, options={"axis": axis[0] if len(axis) == 1 and draw(flags) else axis})


@row("squeeze")
def squeeze(draw, f):
    shape = draw(st.lists(st.sampled_from((1, 0, 2, 3)), max_size=4).map(tuple))
    ones = tuple(i - len(shape) * draw(flags) for i, size in enumerate(shape) if size == 1)
    return drawn(f, shape, options={"axis": draw(st.sampled_from((None, ones, ones[1:])))})


@row("reshape")
def reshape(draw, f):
    shape = draw(shapes())
    target = draw(st.permutations([*shape, 1]))
    if len(target) > 1 and draw(flags):
        target = [target[0] * target[1], *target[2:]]
    if np.prod(shape) and draw(flags):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return drawn(lambda x: f(x, target), shape)


@row("ravel")
def ravel(draw, f):
    return drawn(f, draw(shapes()))


@row("flatten")
def flatten(draw, f):
    shape = draw(shapes())
    ends = sorted(draw(st.integers(0, max(len(shape) - 1, 0))) for _ in range(2))
    ends = [end - len(shape) * draw(flags) if shape else end for end in ends]
    return drawn(f, shape, options=dict(zip(("start_axis", "end_axis"), ends)),
                 sizes=draw(st.sampled_from(("unknown", "known"))))  # fmt: skip


@row("transpose")
def transpose(draw, f):
    shape = draw(shapes())
    axes = draw(st.one_of(st.none(), axes_in(len(shape), least=3)))
    return drawn(f, shape, options={"axes": axes})


@row("permute")
def permute(draw, f):
    shape = draw(shapes(1))
    axes = draw(axes_in(len(shape), least=3))
    return drawn(lambda x: f(x, *axes), shape)


@row("swapaxes")
def swapaxes(draw, f):
    shape = draw(shapes(1))
    one, two = draw(axis_in(len(shape))), draw(axis_in(len(shape)))
    return drawn(f, shape, options={"axis1": one, "axis2": two})


@row("moveaxis")
def moveaxis(draw, f):
    shape = draw(shapes(1))
    one, two = draw(axes_in(len(shape), 1)), draw(axes_in(len(shape), 1))
    count = min(len(one), len(two))
    return drawn(f, shape, options={"source": one[:count], "destination": two[:count]})


@row("flip")
def flip(draw, f):
    shape = draw(shapes())
    return drawn(f, shape, options={"axis": draw(st.one_of(st.none(), axes_in(len(shape))))})


@row("roll")
def roll(draw, f):
    shape = draw(shapes())
    axis = draw(st.one_of(st.none(), axes_in(len(shape), 1)))
    shift = draw(st.integers(-5, 5))
    if axis is not None:
        shift = tuple(draw(st.integers(-5, 5)) for _ in axis)
    return drawn(f, shape, options={"shift": shift, "axis": axis})


@row("repeat")
def repeat(draw, f):
    shape = draw(shapes())
    axis = draw(st.one_of(st.none(), axis_in(len(shape)))) if shape else None
    count = int(np.prod(shape)) if axis is None else shape[axis]
    repeats = draw(st.one_of(sizes(), st.lists(sizes(), min_size=count, max_size=count)))
    return drawn(f, shape, options={"repeats": repeats, "axis": axis})


@row("tile")
def tile(draw, f):
    return drawn(f, draw(shapes(most=2)), options={"reps": draw(shapes(most=2))})


@row("concatenate")
def concatenate(draw, f):
    shape = draw(shapes(1))
    axis = draw(axis_in(len(shape)))
    parts = []
    for _ in range(draw(sizes(1))):
        part = list(shape)
        part[axis] = shape[axis] if draw(flags) else draw(sizes())
        parts.append(tuple(part))
    return drawn(lambda *xs: f(xs, axis), *parts)


@row("stack")
def stack(draw, f):
    shape = draw(shapes(max_dims=2))
    axis = draw(axis_in(len(shape) + 1))
    return drawn(lambda *xs: f(xs, axis), *[shape] * draw(sizes(1)))


@row("split")
def split(draw, f):
    shape = list(draw(shapes(1)))
    axis = draw(axis_in(len(shape)))
    parts = draw(st.one_of(sizes(1), st.lists(sizes(), min_size=1, max_size=3)))
    shape[axis] = parts * draw(sizes()) if isinstance(parts, int) else sum(parts)
    count = parts if isinstance(parts, int) else len(parts)
    f = one_of_results(draw, f, count)
    return drawn(f, tuple(shape), options={"parts": parts, "axis": axis}, sizes=draw(knowledge))


@row("unstack")
def unstack(draw, f):
    shape = list(draw(shapes(1)))
    axis = draw(axis_in(len(shape)))
    shape[axis] = max(shape[axis], 1)
    f = one_of_results(draw, f, shape[axis])
    return drawn(f, tuple(shape), options={"axis": axis})


@row("meshgrid")
def meshgrid(draw, f):
    lengths = draw(st.lists(st.one_of(st.just(()), st.tuples(sizes())), min_size=1, max_size=3))
    f = one_of_results(draw, f, len(lengths))
    return drawn(f, *lengths, options={"indexing": draw(st.sampled_from(("xy", "ij")))})


def widths_for(draw, shape, most=4):
    return tuple((draw(sizes(0, most)), draw(sizes(0, most))) for _ in shape)


@row("pad")
def pad(draw, f):
    shape = draw(shapes())
    widths = widths_for(draw, shape)
    if draw(flags) or not shape:
        return drawn(lambda x, v: f(x, widths or 0, constant_values=v), shape, ())
    return drawn(f, shape, options={"pad_width": widths, "constant_values": 1.5})


@row("pad_own")
def pad_own(draw, f):
    shape = draw(shapes(1, least=1))
    mode = draw(st.sampled_from(("edge", "reflect", "symmetric", "wrap")))
    options = {"pad_width": widths_for(draw, shape), "mode": mode}
    return drawn(ag.ops.pad, shape, options=options)


@row("tril", "triu")
def triangle(draw, f):
    return drawn(f, draw(shapes(2, 4)), options={"k": draw(st.integers(-4, 4))})


@row("diagonal", "trace")
def diagonal(draw, f):
    shape = draw(shapes(2))
    one, two = draw(axes_in(len(shape), least=2))[:2]
    offset = draw(st.integers(-4, 4))
    return drawn(f, shape, options={"offset": offset, "axis1": one, "axis2": two})


@row("diag_embed")
def diag_embed(draw, f):
    return drawn(f, draw(shapes(1)), options={"offset": draw(st.integers(-3, 3))})


@row("diag")
def diag(draw, f):
    return drawn(f, draw(shapes(1, 2)), options={"k": draw(st.integers(-3, 3))})


@row("diagflat")
def diagflat(draw, f):
    return drawn(f, draw(shapes(0, 2, most=2)), options={"k": draw(st.integers(-2, 2))})


@row("pixel_shuffle")
def pixel_shuffle(draw, f):
    n, c, h, w = (draw(sizes(0, 2)) for _ in range(4))
    r = draw(sizes(1))
    return drawn(f, (n, c * r * r, h, w), options={"upscale_factor": r})


@row("pixel_unshuffle")
def pixel_unshuffle(draw, f):
    n, c, h, w = (draw(sizes(0, 2)) for _ in range(4))
    r = draw(sizes(1))
    return drawn(f, (n, c, h * r, w * r), options={"downscale_factor": r})


@row("zeros_like", "ones_like")
def filled_like(draw, f):
    return drawn(f, draw(shapes()), constants=(0,))


@row("full_like")
def full_like(draw, f):
    return drawn(f, draw(shapes()), options={"fill_value": 2.5}, constants=(0,))


@row("linspace")
def linspace(draw, f):
    options = {"num": draw(sizes(0, 5)), "endpoint": draw(flags)}
    return drawn(lambda x, y: f(x.graph, x, y, **options), (), ())


@row("logspace")
def logspace(draw, f):
    options = {"num": draw(sizes(0, 5)), "endpoint": draw(flags), "base": 2.5}
    return drawn(lambda x, y: f(x.graph, x, y, **options), (), (), rtol32=1e-3)


# -- ops without a function of their own --------------------------------------------------------


@st.composite
def merged(draw):
    shape = draw(shapes(1, 4))
    cuts = sorted(draw(st.sets(st.integers(1, len(shape)), max_size=3)) | {len(shape)})
    groups = tuple(int(n) for n in np.diff([0, *cuts]))
    return (shape,), {"groups": groups}, {}


@st.composite
def grouped(draw):
    shape = list(draw(shapes(1)))
    axis, parts = draw(st.integers(0, len(shape) - 1)), draw(sizes(1))
    shape[axis] *= parts
    given = {"parts": parts, "size": -1} if draw(flags) else {"parts": -1, "size": parts}
    return (tuple(shape),), {"axis": axis, **given}, {}


@st.composite
def resized(draw, like):
    shape = list(draw(shapes(1)))
    axis, size = draw(st.integers(0, len(shape) - 1)), draw(sizes(0, 5))
    if like:
        wanted = (*shape[:axis], size, *shape[axis + 1 :])
        return (tuple(shape), wanted), {"axis": axis}, {}
    return (tuple(shape),), {"axis": axis, "size": size}, {}


@st.composite
def placed(draw):
    target = draw(shapes(2))
    offset = draw(st.integers(-2, 2))
    count = np.diagonal(np.zeros(target), offset, -2, -1).shape
    return (count, target), {"offset": offset}, {}


ROWS.update({
    "merge_dims": applied("merge_dims", merged()),
    "group_dim": applied("group_dim", grouped()),
    "resize_axis": applied("resize_axis", resized(False)),
    "resize_axis_like": applied("resize_axis_like", resized(True)),
    "place_diagonal": applied("place_diagonal", placed()),
    "sum_like": pulled("broadcast_like"),
    "repeat_adjoint": pulled("repeat"),
    "tile_adjoint": pulled("tile"),
    "pad_own_adjoint": pulled("pad_own"),
    "reshape_like": pulled("reshape", sizes="unknown"),
    "concatenate_part": pulled("concatenate", sizes="unknown"),
    "concatenate_part_adjoint": pulled("concatenate_part", sizes="unknown"),
    "split_part_adjoint": pulled("split", sizes="unknown"),
})  # fmt: skip
MADE_OF.update({
    "concatenate_starts": "concatenate_part",
    "split_part": "split",
})  # fmt: skip
