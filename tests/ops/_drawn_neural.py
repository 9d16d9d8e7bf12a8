"""Drawn calls of normalisations, losses, attention, recurrent cells, random and control ops."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import (
    MADE_OF,
    ROWS,
    applied,
    axis_in,
    broadcast,
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

reductions = st.sampled_from(("mean", "sum", "none"))

# -- normalisation ------------------------------------------------------------------------------


def channels(draw, most_axes=2, least=2):
    """A batch of channels, with enough entries for a variance."""
    places = tuple(draw(sizes(least)) for _ in range(draw(sizes(1, most_axes))))
    return (draw(sizes(1, 2)), draw(sizes(1, 4)), *places)


def affine(draw, shape):
    return [shape] * draw(st.integers(0, 2))


@row("batch_norm")
def batch_norm(draw, f):
    x = channels(draw)
    f = one_of_results(draw, f, 3)
    return drawn(named(f, "scale", "bias"), x, *affine(draw, x[1:2]), rtol32=1e-3)


def named(f, *names):
    """A normalisation whose parameters are given by name."""
    return lambda x, *affine: f(x, **dict(zip(names, affine, strict=False)), eps=0.01)


@row("layer_norm")
def layer_norm(draw, f):
    x = (*draw(shapes(max_dims=2)), draw(sizes(1)))
    over = x[-draw(st.integers(1, len(x))) :]
    over = (*over[:-1], max(2, over[-1]))
    x = (*x[: len(x) - len(over)], *(max(1, size) for size in over))
    over = x[len(x) - len(over) :]
    return drawn(
        lambda x, *affine: f(x, over, *affine, eps=0.01), x, *affine(draw, over), rtol32=1e-3
    )


@row("rms_norm")
def rms_norm(draw, f):
    over = tuple(draw(sizes(1)) for _ in range(draw(sizes(1, 2))))
    x = (*draw(shapes(max_dims=2)), *over)
    weight = [over] * draw(flags)
    return drawn(lambda x, *weight: f(x, over, *weight, eps=0.01), x, *weight, rtol32=1e-3)


@row("group_norm")
def group_norm(draw, f):
    x, groups = list(channels(draw)), draw(sizes(1, 2))
    x[1] *= groups
    return drawn(
        lambda x, *affine: f(x, groups, *affine, eps=0.01), tuple(x),
        *affine(draw, (x[1],)), rtol32=1e-3,
    )  # fmt: skip


@row("instance_norm")
def instance_norm(draw, f):
    x = channels(draw)
    return drawn(named(f, "weight", "bias"), x, *affine(draw, x[1:2]), rtol32=1e-3)


@row("local_response_norm")
def local_response_norm(draw, f):
    options = {"size": draw(sizes(1, 4)), "alpha": 0.3, "beta": 0.75, "k": 1.5}
    return drawn(f, channels(draw, least=0), options=options)


# -- losses -------------------------------------------------------------------------------------


@row("mse", "l1", "huber", "smooth_l1")
def regression(draw, f):
    reduction = draw(reductions)
    shape = draw(shapes(least=reduction == "mean"))
    return drawn(f, shape, shape, options={"reduction": reduction}, repeats=f is ag.ops.mse)


@row("hinge")
def hinge(draw, f):
    reduction = draw(reductions)
    shape = draw(shapes(least=reduction == "mean"))
    options = {"reduction": reduction, "margin": 9.0}
    return drawn(f, shape, shape, options=options)


@row("kl_div")
def kl_div(draw, f):
    reduction = draw(st.sampled_from(("mean", "sum", "none", "batchmean")))
    shape = draw(shapes(1, least="mean" in reduction))
    options = {"reduction": reduction, "log_target": draw(flags)}
    return drawn(f, shape, shape, options=options, low=0.1, high=2)


@row("binary_cross_entropy", "bce_with_logits")
def binary(draw, f):
    reduction = draw(reductions)
    shape = draw(shapes(least=reduction == "mean"))
    weights = [draw(part_of(shape))] * draw(flags)
    return drawn(
        lambda x, t, *w: f(x, t, *w, reduction=reduction), shape, shape, *weights, low=0.1, high=0.9
    )


@row("pairwise_distance")
def pairwise_distance(draw, f):
    x, y = (*draw(shapes(max_dims=2)), draw(sizes(1))), (draw(sizes(1, 1)),)
    options = {"p": draw(st.sampled_from((2.0, 1.0, 3.0))), "keepdims": draw(flags)}
    return drawn(f, x, draw(st.sampled_from((x, y))), options=options, repeats=False, rtol32=1e-3)


@row("pdist")
def pdist(draw, f):
    options = {"p": draw(st.sampled_from((2.0, 1.0, 3.0)))}
    return drawn(f, (draw(sizes(0, 4)), draw(sizes(1))), options=options, rtol32=1e-3)


@row("cdist")
def cdist(draw, f):
    stack, n, m, d = draw(shapes(max_dims=1)), draw(sizes()), draw(sizes()), draw(sizes(1))
    options = {"p": draw(st.sampled_from((2.0, 1.0, 3.0)))}
    return drawn(f, (*stack, n, d), (*stack, m, d), options=options, repeats=False, rtol32=1e-3)


@row("normalize")
def normalize(draw, f):
    x = draw(shapes(1, least=1))
    options = {"axis": draw(axis_in(len(x))), "p": draw(st.sampled_from((2.0, 1.0, 3.0)))}
    return drawn(f, x, options=options, rtol32=1e-3)


@row("cosine_similarity")
def cosine_similarity(draw, f):
    x, y = draw(broadcast(2, max_dims=3))
    ndim = max(len(x), len(y))
    if not ndim:
        x = y = (draw(sizes(1)),)
        ndim = 1
    return drawn(f, x, y, options={"axis": draw(axis_in(ndim))}, low=0.5, high=2, rtol32=1e-3)


@row("soft_margin_loss", "hinge_embedding_loss", "poisson_nll_loss")
def of_pairs(draw, f):
    reduction = draw(reductions)
    shape = draw(shapes(least=reduction == "mean"))
    return drawn(f, shape, shape, options={"reduction": reduction}, repeats=False)


@row("margin_ranking_loss")
def ranking(draw, f):
    options = {"reduction": draw(reductions), "margin": 9.0}
    shape = draw(shapes(least=1))
    return drawn(f, shape, shape, draw(part_of(shape)), options=options, repeats=False)


@row("gaussian_nll_loss")
def gaussian(draw, f):
    shape = draw(shapes(1, least=1))
    var = draw(st.sampled_from((shape, shape[:-1])))
    options = {"reduction": draw(reductions), "full": draw(flags)}
    return drawn(f, shape, shape, var, options=options, low=0.3, repeats=False)


@row("cosine_embedding_loss")
def cosine_embedding(draw, f):
    lead = draw(shapes(max_dims=1, least=1))
    x = (*lead, draw(sizes(2)))
    signs = [1, -1, 1][: lead[0]] if lead else -1
    options = {"targets": np.array(signs), "reduction": draw(reductions), "margin": -2.0}
    return drawn(f, x, x, options=options, low=0.5, repeats=False, rtol32=1e-3)


@row("multilabel_soft_margin_loss")
def multilabel_soft(draw, f):
    x = (*draw(shapes(max_dims=2, least=1)), draw(sizes(1)))
    weight = [x[-1:]] * draw(flags)
    reduction = draw(reductions)
    return drawn(lambda x, t, *w: f(x, t, *w, reduction=reduction), x, x, *weight, repeats=False)


@row("multi_margin_loss")
def multi_margin(draw, f):
    lead, count = draw(shapes(max_dims=1, least=1)), draw(sizes(1, 4))
    p, reduction = draw(sizes(1, 2)), draw(reductions)
    weight = [(count,)] * draw(flags)
    return drawn(
        lambda x, t, *w: f(x, t, p, 9.0, *w, reduction=reduction), (*lead, count), lead, *weight,
        ints={1: count},
    )  # fmt: skip


@row("multilabel_margin_loss")
def multilabel_margin(draw, f):
    x, reduction = (*draw(shapes(max_dims=1, least=1)), draw(sizes(1, 4))), draw(reductions)
    return drawn(lambda x, t: f(x * 0.2, t - 1, reduction=reduction), x, x, ints={1: x[-1] + 1})


@row("triplet_margin_with_distance_loss")
def triplet_of_any_distance(draw, f):
    shape = draw(shapes(1, 2, least=1))
    options = {"reduction": draw(reductions), "margin": 9.0, "swap": draw(flags)}
    return drawn(f, shape, shape, shape, options=options, repeats=False, rtol32=1e-3)


@row("triplet")
def triplet(draw, f):
    reduction = draw(reductions)
    shape = draw(shapes(1, 2, least=1))
    options = {
        "reduction": reduction, "margin": 9.0, "p": draw(st.sampled_from((2.0, 1.0, 3.0))),
        "swap": draw(flags),
    }  # fmt: skip
    return drawn(f, shape, shape, shape, options=options, repeats=False, rtol32=1e-3)


def classes(draw, least=0):
    """Shapes of logits and targets, and the number of classes."""
    rows, count = draw(shapes(max_dims=2, least=least)), draw(sizes(1, 4))
    return (*rows, count), rows, count


@row("cross_entropy")
def cross_entropy(draw, f):
    reduction = draw(reductions)
    x, t, count = classes(draw, least=reduction == "mean")
    options = {"reduction": reduction}
    if draw(flags):
        return drawn(f, x, t, options=options, ints={1: count}, sizes=draw(knowledge))
    options["label_smoothing"] = draw(st.sampled_from((0.0, 0.3)))
    return drawn(
        lambda x, t, w: f(x, t, weight=w, **options), x, t, (count,), ints={1: count},
        low=0.2, high=2,
    )  # fmt: skip


@row("linear_cross_entropy")
def linear_cross_entropy(draw, f):
    reduction = draw(reductions)
    lead, features, count = draw(shapes(max_dims=2, least=1)), draw(sizes(1)), draw(sizes(1))
    bias = [(count,)] * draw(flags)
    return drawn(
        lambda x, w, t, *b: f(x, w, t, linear_bias=b[0] if b else None, reduction=reduction),
        (*lead, features), (count, features), lead, *bias, ints={2: count},
    )  # fmt: skip


@row("nll")
def nll(draw, f):
    reduction = draw(reductions)
    x, t, count = classes(draw, least=reduction == "mean")
    weight = [(count,)] * draw(flags)
    return drawn(
        lambda x, t, *w: f(x, t, *w, reduction=reduction), x, t, *weight, ints={1: count},
        low=0.2, high=2,
    )  # fmt: skip


@row("pick_softmax", "pick_neg_log_softmax", "pick_neg_log_sigmoid")
def picked(draw, f):
    x, t, count = classes(draw)
    return drawn(f, x, t, ints={1: count})


@row("ctc_loss")
def ctc_loss(draw, f):
    time, batch, count, labels = draw(sizes(1, 5)), draw(sizes(1)), draw(sizes(2, 4)), draw(sizes())
    blank = draw(st.integers(0, count - 1))
    options = {"blank": blank, "zero_infinity": True, "reduction": draw(reductions)}

    def call(x, targets, lengths, used):
        return f(ag.ops.log_softmax(x), targets, lengths, used, **options)

    return drawn(
        call, (time, batch, count), (batch, labels), (batch,), (batch,),
        ints={1: count, 2: time + 1, 3: labels + 1}, rtol32=1e-3,
    )  # fmt: skip


@st.composite
def ctc_curvatures(draw):
    """What the second derivative of ctc_loss is made of; by design it has none by the scores."""
    time, batch, count, labels = draw(sizes(1, 5)), draw(sizes(1)), draw(sizes(2, 4)), draw(sizes())
    x, t, n = (time, batch, count), (batch, labels), (batch,)
    attrs = {"blank": draw(st.integers(0, count - 1)), "zero_infinity": True}
    ints = {3: count, 4: time + 1, 5: labels + 1}
    more = {"ints": ints, "constants": (2,), "second": False, "rtol32": 1e-3}
    return (x, n, x, t, n, n), attrs, more


# -- attention and recurrent cells --------------------------------------------------------------


@row("scaled_dot_product_attention")
def attention(draw, f):
    stack = draw(shapes(max_dims=2, most=2))
    q, k, d, out = draw(sizes()), draw(sizes(1)), draw(sizes(1)), draw(sizes())
    found = [(*stack, q, d), (*stack, k, d), (*stack, k, out)]
    kind, causal = draw(st.sampled_from((None, "float", "bool"))), draw(flags)
    if kind:
        found.append(draw(part_of((*stack, q, k))))
    bools = (3,) if kind == "bool" else ()
    return drawn(f, *found, options={"is_causal": causal}, bools=bools, repeats=False)


@row("multi_head_attention")
def heads(draw, f):
    stack, count = draw(shapes(max_dims=1, least=1)), draw(sizes(1, 2))
    width, out, bias = count * draw(sizes(1, 2)), draw(sizes(1)), draw(flags)
    q, k = (*stack, draw(sizes(1)), width), (*stack, draw(sizes(1)), width)
    causal = draw(flags)

    def call(q, k, v, w, o, *bias):
        named = dict(zip(("in_proj_bias", "out_proj_bias"), bias, strict=False))
        return f(q, k, v, count, in_proj_weight=w, out_proj_weight=o, is_causal=causal, **named)

    found = [q, k, k, (3 * width, width), (out, width), *[(3 * width,), (out,)] * bias]
    return drawn(call, *found, repeats=False, rtol32=1e-3)


def cell_shapes(draw, gates, states):
    n, h = draw(sizes(1)), draw(sizes(1, 2))
    batch = [draw(sizes())] * draw(flags)
    bias = [(gates * h,)] * (2 * draw(flags))
    return [(*batch, n), *[(*batch, h)] * states, (gates * h, n), (gates * h, h), *bias]


@row("rnn_cell")
def rnn_cell(draw, f):
    options = {"nonlinearity": draw(st.sampled_from(("tanh", "relu")))}
    return drawn(f, *cell_shapes(draw, 1, 1), options=options, repeats=False)


@row("gru_cell")
def gru_cell(draw, f):
    return drawn(f, *cell_shapes(draw, 3, 1), repeats=False)


@row("lstm_cell")
def lstm_cell(draw, f):
    f = one_of_results(draw, f, 2)
    return drawn(lambda x, h, c, *w: f(x, (h, c), *w), *cell_shapes(draw, 4, 2), repeats=False)


def over_time(draw, f, gates, states):
    """A layer over a sequence: its outputs or a last state, with a first state or without."""
    (*_, n), state, *weights = cell_shapes(draw, gates, 1)
    reverse, which, given = draw(flags), draw(st.integers(0, states)), states * draw(flags)

    def call(x, *others):
        first, w = others[:given], others[given:]
        state = None if not given else first if states > 1 else first[0]
        outputs, end = f(x, state, *w, reverse=reverse)
        return [outputs, *(end if states > 1 else [end])][which]

    shapes = [(draw(sizes(1)), *state[:-1], n), *[state] * given, *weights]
    return drawn(call, *shapes, repeats=False, rtol32=1e-3)


@row("rnn")
def rnn(draw, f):
    return over_time(draw, f, 1, 1)


@row("gru")
def gru(draw, f):
    return over_time(draw, f, 3, 1)


@row("lstm")
def lstm(draw, f):
    return over_time(draw, f, 4, 2)


@row("yolo_decode")
def yolo_decode(draw, f):
    n, count, h, w = draw(sizes(0, 2)), draw(sizes(0, 2)), draw(sizes(1, 2)), draw(sizes(1, 2))
    anchors = [[10, 13], [16, 30]][: draw(sizes(1, 2))]
    options = {"anchors": anchors, "net_size": 32, "classes": count}
    return drawn(f, (n, len(anchors) * (5 + count), h, w), options=options)


# -- random draws and control -------------------------------------------------------------------


@st.composite
def random_draw(draw, **attrs):
    more = {"shape": draw(shapes()), "dtype": "float64", "seed": draw(sizes()), "draw": 2}
    return ((),), {**attrs, **more}, {"ints": {0: 9}}


@st.composite
def binomials(draw):
    target = draw(shapes())
    attrs = {"trials": 5, "shape": target, "seed": 1, "draw": 2}
    return ((), draw(part_of(target))), attrs, {"ints": {0: 9}, "low": 0.0, "high": 1.0}


@st.composite
def categoricals(draw):
    x = (*draw(shapes(max_dims=2)), draw(sizes(1)))
    return ((), x), {"seed": 1, "draw": 2}, {"ints": {0: 9}}


@st.composite
def scalars(draw):
    return ((),), {"first": draw(sizes()), "size": draw(sizes()), "step": draw(sizes(1))}, {}


def passing(name, count=1, **attrs):
    """An op that passes its first argument on."""
    found = st.tuples(*[shapes()] * count)
    return applied(name, found.map(lambda found: (found, attrs, {})))


def square(value):
    return value * 1.0


ROWS.update({
    "standardize_pull": pulled("layer_norm"),
    "inverse_deviation": pulled("instance_norm"),
    "cross_entropy_pull": pulled("cross_entropy"),
    "ctc_pull": pulled("ctc_loss").map(lambda one: replace(one, second=False)),
    "ctc_curvature": applied("ctc_curvature", ctc_curvatures()),
    "causal_mask": applied("causal_mask", shapes(2).map(lambda shape: ((shape,), {}, {}))),
    "random_normal": applied("random_normal", random_draw()),
    "random_uniform": applied("random_uniform", random_draw()),
    "random_truncated_normal": applied(
        "random_truncated_normal", random_draw(low=-1.0, high=2.0)
    ),
    "random_binomial": applied("random_binomial", binomials()),
    "random_categorical": applied("random_categorical", categoricals()),
    "arange": applied("arange", scalars()),
    "as_it_is": passing("as_it_is", number=0),
    "recompute": passing("recompute", 2),
    "checkpoint": passing("checkpoint", 2),
    "hook_gradient": passing("hook_gradient", fn=square),
})  # fmt: skip
MADE_OF.update({
    "turned": "rnn",
    "standardize": "layer_norm",
})  # fmt: skip
