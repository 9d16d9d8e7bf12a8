"""Drawn calls of ops that take, write, order, count or sum entries by place or along axes."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import actorgraph as ag
from tests.ops._drawn import (
    MADE_OF,
    ROWS,
    applied,
    axes_or_none,
    axis_in,
    broadcast,
    drawn,
    entries_along,
    flags,
    knowledge,
    one_of_results,
    part_of,
    pulled,
    row,
    shapes,
    sizes,
)

# -- reductions ---------------------------------------------------------------------------------


def over_axes(draw, f, empty, **options):
    """A reduction over any axes; `empty`: also over no entries."""
    shape = draw(shapes())
    axis = draw(axes_or_none(len(shape)))
    if not empty and not entries_along(shape, axis):
        shape = tuple(max(1, size) for size in shape)
    options |= {"axis": axis, "keepdims": draw(flags)}
    return shape, options


@row("sum", "prod", "any", "all", "count_nonzero")
def reduction(draw, f):
    shape, options = over_axes(draw, f, empty=True)
    return drawn(f, shape, options=options, sizes=draw(knowledge))


@row("mean", "max", "min", "logsumexp")
def reduction_of_some(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    return drawn(f, shape, options=options, sizes=draw(knowledge))


@row("var", "std")
def spread(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    count = entries_along(shape, options["axis"])
    if f is ag.ops.std and count < 2:  # the deviation of one entry is a kink at 0
        shape = (*(max(2, size) for size in shape), 2)
        options["axis"] = -1
        count = 2
    options["ddof"] = draw(st.sampled_from((0, 1, 0.5))) if count > 1 else 0
    return drawn(f, shape, options=options)


@row("norm")
def norm(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    options["p"] = draw(st.sampled_from((2, 1, 3, 0, 1.5, -2, np.inf, -np.inf)))
    return drawn(f, shape, options=options, rtol32=1e-3)


@row("argmax", "argmin")
def arg(draw, f):
    shape = draw(shapes(least=1))
    axis = draw(st.one_of(st.none(), axis_in(len(shape)))) if shape else None
    return drawn(f, shape, options={"axis": axis, "keepdims": draw(flags)})


@row("cumsum", "cumprod")
def cumulative(draw, f):
    shape = draw(shapes())
    axis = draw(st.one_of(st.none(), axis_in(len(shape)))) if shape else None
    return drawn(f, shape, options={"axis": axis})


@row("softmax", "softmin", "log_softmax", "sparsemax")
def along_an_axis(draw, f):
    shape = draw(shapes(1))
    return drawn(f, shape, options={"axis": draw(axis_in(len(shape)))})


@row("sort", "argsort")
def order(draw, f):
    shape = draw(shapes(1))
    return drawn(f, shape, options={"axis": draw(axis_in(len(shape))), "descending": draw(flags)})


@row("topk")
def topk(draw, f):
    shape = draw(shapes(1))
    axis = draw(axis_in(len(shape)))
    options = {"axis": axis, "largest": draw(flags), "k": draw(st.integers(0, shape[axis]))}
    return drawn(one_of_results(draw, f, 2), shape, options=options)


@row("unique")
def unique(draw, f):
    options = {f"return_{what}": True for what in ("index", "inverse", "counts")}
    f = one_of_results(draw, f, 4)
    return drawn(f, draw(shapes()), options=options, constants=(0,))


@row("searchsorted")
def searchsorted(draw, f):
    def call(x, ordered):
        return f(ag.ops.sort(ordered), x, side=side)

    side = draw(st.sampled_from(("left", "right")))
    return drawn(call, draw(shapes()), (draw(sizes()),))


@row("size_of")
def size_of(draw, f):
    shape = draw(shapes())
    axis = draw(st.one_of(st.none(), axis_in(len(shape)))) if shape else None
    return drawn(f, shape, options={"axis": axis}, sizes=draw(knowledge))


@row("clip_by_norm")
def clip_by_norm(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    return drawn(f, shape, options={"max_norm": 1.5, "axis": options["axis"]}, low=0.3)


@row("clip_by_global_norm")
def clip_by_global_norm(draw, f):
    def call(*xs):
        return f(xs, 1.5)[0][-1]

    return drawn(call, *draw(st.lists(shapes(), min_size=1, max_size=3)), low=0.3)


@row("array_equal")
def array_equal(draw, f):
    shape = draw(shapes())
    return drawn(f, shape, draw(st.one_of(st.just(shape), shapes())))


@row("allclose")
def allclose(draw, f):
    return drawn(f, *draw(broadcast(2)))


# -- positions ----------------------------------------------------------------------------------


def signed(positions, size, counted_back):
    """Positions counted from the end where asked for."""
    return positions - size if counted_back else positions


@row("take")
def take(draw, f):
    shape = draw(shapes())
    axis = draw(st.one_of(st.none(), axis_in(len(shape)))) if shape else None
    size = int(np.prod(shape)) if axis is None else shape[axis]
    places = draw(shapes(max_dims=2)) if size else (0,)
    back = draw(flags)
    return drawn(
        lambda x, i: f(x, signed(i, size, back), axis), shape, places, ints={1: max(1, size)}
    )


def shorter(draw, shape, axis):
    """The shape of an index into `shape` along an axis."""
    index = [draw(st.integers(0, size)) for size in shape]
    index[axis] = draw(sizes()) if shape[axis] else 0
    return tuple(index)


@row("gather")
def gather(draw, f):
    shape = draw(shapes(1))
    axis = draw(axis_in(len(shape)))
    size, back = shape[axis], draw(flags)
    index = shorter(draw, shape, axis)
    return drawn(
        lambda x, i: f(x, axis, signed(i, size, back)), shape, index, ints={1: max(1, size)}
    )


@row("take_along_axis")
def take_along_axis(draw, f):
    shape = list(draw(shapes(1)))
    axis = draw(axis_in(len(shape)))
    index = [1 if draw(flags) else size for size in shape]
    shape = [1 if draw(flags) else size for size in shape]
    index[axis] = draw(sizes()) if shape[axis] else 0
    size, back = shape[axis], draw(flags)
    return drawn(
        lambda x, i: f(x, signed(i, size, back), axis),
        tuple(shape), tuple(index), ints={1: max(1, size)},
    )  # fmt: skip


@row("gather_nd")
def gather_nd(draw, f):
    shape = draw(shapes(1, least=1))
    depth = draw(st.integers(0, len(shape)))
    places = (*draw(shapes(max_dims=2)), depth)
    return drawn(f, shape, places, ints={1: min(shape)})


@row("at")
def at(draw, f):
    shape = draw(shapes(least=1))
    coords = tuple(draw(st.integers(-size, size - 1)) for size in shape)
    if shape and draw(flags):
        return drawn(lambda x, i: f(x, i, *coords[1:]), shape, (), ints={1: shape[0]})
    return drawn(lambda x: f(x, *coords), shape)


@row("pick")
def pick(draw, f):
    places = draw(shapes(max_dims=2))
    axis, count = draw(axis_in(len(places) + 1)), draw(sizes(1))
    place = axis % (len(places) + 1)
    shape = (*places[:place], count, *places[place:])
    return drawn(lambda x, i: f(x, i, axis), shape, places, ints={1: count})


def array_index(draw, shape):
    """Arrays of positions for the first axes, with the values' shape."""
    count = draw(st.integers(1, len(shape)))
    places = draw(shapes(max_dims=2, least=1))
    return [draw(part_of(places)) for _ in range(count)], count


@row("getitem")
def getitem(draw, f):
    kind = draw(st.sampled_from(("slices", "arrays", "nodes", "mask", "mixed")))
    shape = draw(shapes(1, least=1)) if kind != "slices" else draw(shapes())
    if kind == "slices":
        index = draw(hnp.basic_indices(shape, allow_newaxis=True))
        return drawn(lambda x: f(x, index), shape, sizes="known")
    if kind == "arrays":
        index = draw(hnp.integer_array_indices(shape))
        return drawn(lambda x: f(x, index), shape)
    if kind == "mask":
        first = draw(st.integers(0, len(shape) - 1))
        masked = shape[first : first + draw(sizes(1))]
        index = (slice(None),) * first
        return drawn(lambda x, m: f(x, (*index, m)), shape, masked, bools=(1,))
    places, count = array_index(draw, shape)
    ints = {i + 1: shape[i] for i in range(count)}
    if kind == "nodes" or count == len(shape):
        return drawn(lambda x, *i: f(x, i), shape, *places, ints=ints)
    step = draw(st.sampled_from((1, -1, 2, -2)))
    between = draw(st.sampled_from(((slice(None, None, step),), (Ellipsis,), (None,))))
    return drawn(lambda x, i, *rest: f(x, (i, *between)), shape, *places[:1], ints={1: shape[0]})


@row("index_put")
def index_put(draw, f):
    shape = draw(shapes(1, least=1))
    options = {"accumulate": draw(flags)}
    if draw(flags):
        index = draw(hnp.basic_indices(shape, allow_newaxis=False))
        values = draw(part_of(np.zeros(shape)[index].shape))
        return drawn(lambda x, v: f(x, index, v, **options), shape, values)
    places, count = array_index(draw, shape)
    whole = (*np.broadcast_shapes(*places), *shape[count:])
    return drawn(
        lambda x, v, *i: f(x, i, v, **options), shape, draw(part_of(whole)), *places,
        ints={i + 2: shape[i] for i in range(count)},
    )  # fmt: skip


@row("index_put_add")
def index_put_add(draw, f):
    shape = draw(shapes(1, least=1))
    places = draw(shapes(1, 1))
    values = draw(part_of((*places, *shape[1:])))
    return drawn(
        lambda x, v, i: ag.ops.index_put(x, i, v, accumulate=True), shape, values, places,
        ints={2: shape[0]}, sizes=draw(knowledge),
    )  # fmt: skip


@row("put")
def put(draw, f):
    shape = draw(shapes(least=1))
    places, options = draw(shapes(max_dims=2)), {"accumulate": draw(flags)}
    return drawn(
        lambda x, v, i: f(x, i, v, **options), shape, draw(part_of(places)), places,
        ints={2: int(np.prod(shape))},
    )  # fmt: skip


@row("scatter", "scatter_add")
def scatter(draw, f):
    shape = draw(shapes(1, least=1))
    axis = draw(axis_in(len(shape)))
    index = shorter(draw, shape, axis)
    size, back = shape[axis], draw(flags)
    return drawn(
        lambda x, src, i: f(x, axis, signed(i, size, back), src), shape, draw(part_of(index)),
        index, ints={2: size},
    )  # fmt: skip


@row("index_add")
def index_add(draw, f):
    shape = draw(shapes(1, least=1))
    axis, count = draw(axis_in(len(shape))), draw(sizes())
    source = list(shape)
    source[axis] = count
    return drawn(
        lambda x, src, i: f(x, axis, i, src, alpha=1.5), shape, draw(part_of(tuple(source))),
        (count,), ints={2: shape[axis]},
    )  # fmt: skip


@row("one_hot")
def one_hot(draw, f):
    depth = draw(sizes(1))
    return drawn(f, draw(shapes()), options={"depth": depth, "dtype": "float64"}, ints={0: depth})


@row("embedding")
def embedding(draw, f):
    count, width = draw(sizes(1)), draw(sizes())
    return drawn(f, draw(shapes()), (count, width), ints={0: count}, sizes=draw(knowledge))


@row("embedding_bag")
def embedding_bag(draw, f):
    count, width, mode = (
        draw(sizes(1)),
        draw(sizes()),
        draw(st.sampled_from(("mean", "sum", "max"))),
    )
    options = {"mode": mode, "padding_idx": draw(st.sampled_from((None, 0, -1)))}
    index = draw(shapes(1, 2, least=1))
    if len(index) == 1:
        starts = draw(st.lists(st.integers(0, index[0]), max_size=2))
        options["offsets"] = np.array([0, *sorted(starts)])
    weights = [index] * (mode == "sum" and draw(flags))
    return drawn(
        lambda i, w, *more: f(i, w, per_sample_weights=more[0] if more else None, **options),
        index, (count, width), *weights, ints={0: count},
    )  # fmt: skip


@row("linear")
def linear(draw, f):
    n, out = draw(sizes()), draw(sizes())
    bias = [(out,)] * draw(flags)
    return drawn(f, (*draw(shapes()), n), (out, n), *bias, repeats=False)


@row("bilinear")
def bilinear(draw, f):
    stack, n, m, out = draw(shapes(max_dims=2)), draw(sizes(1)), draw(sizes(1)), draw(sizes(1))
    bias = [(out,)] * draw(flags)
    return drawn(f, (*stack, n), (*stack, m), (out, n, m), *bias, repeats=False)


@row("glu")
def glu(draw, f):
    x = list(draw(shapes(1)))
    axis = draw(axis_in(len(x)))
    x[axis] *= 2
    return drawn(f, tuple(x), options={"axis": axis})


@row("rrelu")
def rrelu(draw, f):
    return drawn(f, draw(shapes()))


@row("celu", "relu6", "selu", "sec")
def activation(draw, f):
    return drawn(f, draw(shapes()), low=-1.4, high=1.4)


@row("cot", "csc")
def with_a_pole(draw, f):
    return drawn(f, draw(shapes()), low=0.3, high=2.8)


@row("real", "imag", "angle", "complex_abs")
def of_complex(draw, f):
    return drawn(f or ag.ops.abs, draw(shapes()), complexes=(0,))


@row("astype")
def astype(draw, f):
    to = draw(st.sampled_from(("complex128", "float64", "int64", "bool")))
    return drawn(f, draw(shapes()), options={"dtype": to})


# -- ops without a function of their own --------------------------------------------------------


@st.composite
def along(draw, count, *names):
    shape = draw(shapes(1))
    options = {name: draw(flags) for name in names}
    return (shape,) * count, {"axis": draw(st.integers(0, len(shape) - 1)), **options}, {}


@st.composite
def padded_rows(draw):
    """Rows of which one gets nothing, which no value of the forward op tells."""
    count, width, places = draw(sizes(1)), draw(sizes()), draw(shapes())
    padding = draw(st.one_of(st.none(), st.integers(0, count - 1)))
    found, size = ((*places, width), places), count
    if draw(flags):
        found, size = (*found, (count, width)), None
    return found, {"size": size, "padding": padding}, {"ints": {1: count}}


@st.composite
def centred(draw):
    found, attrs, _ = draw(axes_of_a_shape())
    count = np.prod([found[0][axis] for axis in attrs["axis"]])
    return found, {**attrs, "ddof": draw(st.integers(0, int(count) - 1))}, {}


@st.composite
def axes_of_a_shape(draw, **fields):
    shape = draw(shapes(1, least=1))
    axis = tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    return (shape,), {"axis": axis}, {}


@st.composite
def complex_arrays(draw):
    return (draw(shapes()),), {"dtype": "float64"}, {"complexes": (0,)}


ROWS.update({
    "cumprod_before": applied("cumprod_before", along(1, "reverse")),
    "scan_before": applied("scan_before", along(2, "reverse")),
    "size_along": applied("size_along", axes_of_a_shape()),
    "divide_by_size": applied(
        "divide_by_size", shapes().map(lambda shape: ((shape,), {"size": 3}, {}))
    ),
    "deviation": applied("deviation", centred()),
    "getitem_adjoint": pulled("getitem"),
    "getitem_adjoint_like": pulled("getitem", sizes="unknown"),
    "last_writes": pulled("index_put", wrt=1),
    "pick_adjoint": pulled("pick"),
    "embedding_adjoint": applied("embedding_adjoint", padded_rows()),
    "real_part": applied("real_part", complex_arrays()),
})  # fmt: skip
MADE_OF.update({
    "mask_positions": "getitem",
    "topk_indices": "topk",
})  # fmt: skip
