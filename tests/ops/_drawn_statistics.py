"""Calls of ops that pass over NaN, order, count, find and reduce what meets at one place."""

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import (
    MADE_OF,
    axes_or_none,
    axis_in,
    broadcast,
    drawn,
    entries_along,
    flags,
    knowledge,
    one_of_results,
    part_of,
    row,
    shapes,
    sizes,
)
from tests.ops._drawn_places import over_axes, shorter, signed

# -- what passes over NaN -----------------------------------------------------------------------


def with_nan(f):
    """`f` of an array whose first entry is NaN."""
    return lambda x, **options: f(ag.ops.put(x, [0], np.nan), **options)


def over_some(draw, least):
    """A shape and axes of at least so many entries."""
    shape = draw(shapes(least=1))
    axis = draw(axes_or_none(len(shape)))
    if entries_along(shape, axis) < least:
        shape, axis = (*shape, 3), -1
    return shape, {"axis": axis, "keepdims": draw(flags)}


@row("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanmedian")
def over_numbers(draw, f):
    shape, options = over_some(draw, 2)
    if draw(flags):
        return drawn(with_nan(f), shape, options=options)
    ordered = f in (ag.ops.nanmax, ag.ops.nanmin, ag.ops.nanmedian)
    complexes = () if ordered or draw(flags) else (0,)
    return drawn(f, shape, options=options, sizes=draw(knowledge), complexes=complexes)


@row("nanvar", "nanstd")
def spread_of_numbers(draw, f):
    shape, options = over_some(draw, 3)
    options["ddof"] = draw(st.sampled_from((0, 1)))
    return drawn(with_nan(f) if draw(flags) else f, shape, options=options)


@row("nancumsum", "nancumprod")
def running_over_numbers(draw, f):
    shape = draw(shapes(1, least=1))
    axis = draw(st.one_of(st.none(), axis_in(len(shape))))
    return drawn(with_nan(f) if draw(flags) else f, shape, options={"axis": axis})


@row("nanargmax", "nanargmin")
def position_of_a_number(draw, f):
    shape = draw(shapes(1, least=1))
    axis = draw(st.one_of(st.none(), axis_in(len(shape))))
    return drawn(with_nan(f), shape, options={"axis": axis, "keepdims": draw(flags)})


METHODS = (
    "linear lower higher nearest midpoint hazen weibull median_unbiased normal_unbiased "
    "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf"
).split()


@row("quantile", "nanquantile", "percentile", "nanpercentile")
def quantile(draw, f):
    shape, options = over_some(draw, 2)
    options |= {"method": draw(st.sampled_from(METHODS))}
    whole = 100 if "percentile" in f.__name__ else 1
    q = draw(st.sampled_from((0.3, 0, 1, [0.25, 0.5], [0.61, 0.13, 1.0])))
    options["q"] = np.multiply(q, whole).tolist()
    if f.__name__.startswith("nan") and draw(flags):
        return drawn(with_nan(f), shape, options=options)
    return drawn(f, shape, options=options, sizes=draw(knowledge))


@row("median")
def median(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    return drawn(f, shape, options=options, sizes=draw(knowledge))


# -- order --------------------------------------------------------------------------------------


@row("cummax", "cummin")
def running_extreme(draw, f):
    shape = draw(shapes(1))
    options = {"axis": draw(axis_in(len(shape)))}
    return drawn(one_of_results(draw, f, 2), shape, options=options, sizes=draw(knowledge))


@row("logcumsumexp")
def running_logarithm(draw, f):
    shape = draw(shapes(1))
    return drawn(f, shape, options={"axis": draw(axis_in(len(shape)))}, sizes=draw(knowledge))


@row("kthvalue")
def kthvalue(draw, f):
    shape = draw(shapes(1, least=1))
    axis = draw(axis_in(len(shape)))
    options = {"k": draw(st.integers(1, shape[axis])), "axis": axis, "keepdims": draw(flags)}
    return drawn(one_of_results(draw, f, 2), shape, options=options)


@row("aminmax")
def aminmax(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    return drawn(one_of_results(draw, f, 2), shape, options=options, sizes=draw(knowledge))


@row("mode")
def mode(draw, f):
    shape = draw(shapes(1, least=1))
    options = {"axis": draw(axis_in(len(shape))), "keepdims": draw(flags)}
    return drawn(one_of_results(draw, f, 2), shape, options=options, sizes=draw(knowledge))


# -- finding and counting -----------------------------------------------------------------------


@row("flatnonzero", "argwhere")
def places(draw, f):
    return drawn(lambda x: f(x > 0), draw(shapes(1)), constants=(0,), sizes=draw(knowledge))


@row("nonzero")
def nonzero(draw, f):
    return drawn(lambda x: x[f(x > 0)], draw(shapes(1)), sizes=draw(knowledge))


@row("isin")
def isin(draw, f):
    options = {"invert": draw(flags)}
    return drawn(f, draw(shapes()), draw(shapes()), options=options, constants=(0, 1))


@row("masked_scatter")
def masked_scatter(draw, f):
    shape = draw(shapes())
    size = int(np.prod(shape)) + draw(sizes())
    return drawn(f, shape, draw(part_of(shape)), (size,), bools=(1,))


@row("bincount")
def bincount(draw, f):
    count, length = draw(sizes()), draw(sizes())
    if draw(flags):
        return drawn(lambda i: f(i, minlength=length), (count,), ints={0: 4})
    return drawn(lambda w, i: f(i, w, length), (count,), (count,), ints={1: 4})


@row("digitize")
def digitize(draw, f):
    bins = draw(st.sampled_from(([-1, 0, 0, 1.5], [1, -1], [0.5], [])))
    return drawn(f, draw(shapes()), options={"bins": bins, "right": draw(flags)}, constants=(0,))


@row("histogram")
def histogram(draw, f):
    shape = draw(shapes())
    options = {"bins": draw(st.sampled_from((1, 3, [-1, 0.25, 1]))), "range": (-1, 1)}

    def call(w, x):
        return f(x, weights=w, **options)[0]

    return drawn(call, shape, shape, constants=(1,), repeats=False)


# -- functions by samples -----------------------------------------------------------------------


@row("interp")
def interp(draw, f):
    count = draw(st.integers(1, 4))
    places = np.linspace(-1.1, 1.3, count).tolist()
    outside = {"left": 0.5, "right": -0.5} if draw(flags) else {}
    return drawn(lambda x, fp: f(x, places, fp, **outside), draw(shapes()), (count,))


@row("trapezoid", "cumulative_trapezoid")
def trapezoid(draw, f):
    shape = draw(shapes(1))
    axis = draw(axis_in(len(shape)))
    if draw(flags):
        return drawn(f, shape, options={"axis": axis, "dx": 0.3}, sizes=draw(knowledge))
    where = shape if draw(flags) else (shape[axis],)
    return drawn(f, shape, where, options={"axis": axis})


@row("convolve")
def convolve(draw, f):
    first, second = (draw(st.integers(1, 5)) for _ in range(2))
    complexes = (0, 1) if draw(flags) else ()
    mode = draw(st.sampled_from(("full", "same", "valid")))
    return drawn(f, (first,), (second,), options={"mode": mode}, complexes=complexes)


@row("array")
def array(draw, f):
    count = draw(st.integers(1, 3))
    return drawn(lambda *xs: f([[*xs], [*xs]]), *[draw(shapes())] * count)


# -- what varies together -----------------------------------------------------------------------


@row("average")
def average(draw, f):
    shape, options = over_axes(draw, f, empty=False)
    if draw(flags):
        return drawn(f, shape, options=options, sizes=draw(knowledge))
    return drawn(lambda x, w: f(x, weights=w, **options), shape, shape, low=0.5)


@row("cov")
def cov(draw, f):
    shape = (draw(sizes(1)), draw(st.integers(2, 4)))
    options = {"bias": draw(flags), "rowvar": draw(flags)}
    if shape[int(options["rowvar"])] < 2:
        options["bias"] = True
    complexes = (0,) if draw(flags) else ()
    return drawn(f, shape, options=options, complexes=complexes)


@row("corrcoef")
def corrcoef(draw, f):
    # Bounds at 1 are kinks: of what is off the diagonal only.
    shape = (draw(st.integers(2, 3)), draw(st.integers(3, 5)))
    return drawn(lambda x: f(x)[0, 1:], shape, rtol32=1e-3)


# -- what meets at one place --------------------------------------------------------------------

reductions = st.sampled_from(("sum", "mean", "prod", "amax", "amin"))


@row("scatter_reduce", "index_put_reduce")
def scatter_reduce(draw, f):
    f = ag.ops.scatter_reduce
    shape = draw(shapes(1, least=1))
    axis = draw(axis_in(len(shape)))
    index = shorter(draw, shape, axis)
    size, back = shape[axis], draw(flags)
    options = {"reduce": draw(reductions), "include_self": draw(flags)}
    return drawn(
        lambda x, src, i: f(x, axis, signed(i, size, back), src, **options), shape, index, index,
        ints={2: size}, sizes=draw(knowledge) if len(shape) == 1 else "known",
        complexes=(0, 1) if options["reduce"][0] != "a" and draw(flags) else (),
    )  # fmt: skip


@row("index_reduce")
def index_reduce(draw, f):
    shape = draw(shapes(1, least=1))
    axis, count = draw(axis_in(len(shape))), draw(sizes())
    source = list(shape)
    source[axis] = count
    options = {"reduce": draw(reductions), "include_self": draw(flags)}
    return drawn(
        lambda x, src, i: f(x, axis, i, src, **options), shape, tuple(source), (count,),
        ints={2: shape[axis]},
    )  # fmt: skip


@row("segment_reduce")
def segment_reduce(draw, f):
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    shape = list(draw(shapes(1, least=1)))
    axis = draw(axis_in(len(shape)))
    shape[axis] = sum(lengths)
    options = {"reduce": draw(reductions), "axis": axis, "lengths": np.array(lengths)}
    return drawn(f, tuple(shape), options=options)


# -- names of PyTorch ---------------------------------------------------------------------------


@row("masked_fill")
def masked_fill(draw, f):
    shape = draw(shapes())
    return drawn(f, shape, draw(part_of(shape)), (), bools=(1,))


@row("masked_select")
def masked_select(draw, f):
    return drawn(f, *draw(broadcast(2, least=1)), bools=(1,))


@row("index_fill", "index_copy", "index_select")
def at_an_index(draw, f):
    shape = draw(shapes(1, least=1))
    axis, count = draw(axis_in(len(shape))), draw(sizes())
    source = list(shape)
    source[axis] = count
    values = () if f is ag.ops.index_fill else tuple(source)
    if f is ag.ops.index_select:
        return drawn(lambda x, i: f(x, axis, i), shape, (count,), ints={1: shape[axis]})
    return drawn(lambda x, v, i: f(x, axis, i, v), shape, values, (count,), ints={2: shape[axis]})


@row("select_scatter", "slice_scatter", "narrow")
def at_a_slice(draw, f):
    shape = draw(shapes(1, least=1))
    axis = draw(st.integers(0, len(shape) - 1))
    place = draw(st.integers(-shape[axis], shape[axis] - 1))
    if f is ag.ops.narrow:
        length = draw(st.integers(0, shape[axis] - place % shape[axis]))
        return drawn(f, shape, options={"axis": axis, "start": place, "length": length})
    if f is ag.ops.select_scatter:
        rest = (*shape[:axis], *shape[axis + 1 :])
        return drawn(f, shape, rest, options={"axis": axis, "index": place})
    part = list(shape)
    part[axis] = len(range(shape[axis])[place::2])
    return drawn(f, shape, tuple(part), options={"axis": axis, "start": place, "step": 2})


@row("block_diag", "cartesian_prod")
def joined(draw, f):
    most = 2 if f is ag.ops.block_diag else 1
    found = draw(st.lists(shapes(0 if most == 2 else 1, most), min_size=1, max_size=3))
    return drawn(f, *found)


@row("dist")
def dist(draw, f):
    return drawn(f, *draw(broadcast(2, least=1)), options={"p": draw(st.sampled_from((1, 2, 3)))})


@row("renorm")
def renorm(draw, f):
    shape = draw(shapes(1, least=1))
    options = {"p": 2, "axis": draw(axis_in(len(shape))), "maxnorm": 1.3}
    return drawn(f, shape, options=options, rtol32=1e-3)


@row("lerp")
def lerp(draw, f):
    return drawn(f, *draw(broadcast(3)))


@row("bucketize")
def bucketize(draw, f):
    options = {"boundaries": [-1, 0, 0, 1.5], "right": draw(flags)}
    return drawn(f, draw(shapes()), options=options, constants=(0,))


@row("histc")
def histc(draw, f):
    return drawn(f, draw(shapes()), options={"bins": 3, "low": -1, "high": 1}, constants=(0,))


MADE_OF.update({"running_extreme": "cummax", "mode_indices": "mode"})
