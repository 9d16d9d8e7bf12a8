"""Comparisons of the layers and losses of networks; see `_oracle`."""

from itertools import groupby, product

import numpy as np

import actorgraph as ag
from tests.ops._oracle import alike, both, row, torch
from tests.ops.test_neural import ANCHORS, decoded_by_pytorch

F = torch.nn.functional
CLASSES = [2, 0, 1]
WEIGHTS = np.array([0.3, 2, 1, 0.7])
MASK = torch.tensor([[False, True, True, False], [True, False, True, True]])

# -- layers ---------------------------------------------------------------------------------------

alike("linear", (2, 4), (3, 4), (3,), space=F)
row("bilinear", None, lambda x, y, w, b: torch.einsum("ni,oij,nj->no", x, w, y) + b, (2, 3), (2, 4),
    (2, 3, 4), (2,))  # fmt: skip
for rank, sizes in ((1, (7,)), (2, (5, 6)), (3, (4, 3, 4))):
    kernel = (2,) * rank
    both(f"conv{rank}d", lambda f, x, w, b, n=rank: getattr(f, f"conv{n}d")(x, w, b, 2, 1, 1, 2),
         (2, 4, *sizes), (4, 2, *kernel), (4,), space=F)  # fmt: skip
    both(f"conv_transpose{rank}d",
         lambda f, x, w, b, n=rank: getattr(f, f"conv_transpose{n}d")(x, w, b, 2, 1, 1, 2),
         (2, 4, *sizes[:rank - 1], 3), (4, 2, *kernel), (4,), space=F)  # fmt: skip
    both(f"avg_pool{rank}d", lambda f, x, n=rank: getattr(f, f"avg_pool{n}d")(x, 2, 1, 1),
         (1, 2, *sizes), space=F)  # fmt: skip
    both(f"max_pool{rank}d", lambda f, x, n=rank: getattr(f, f"max_pool{n}d")(
         x, 2, 2, return_indices=True), (1, 2, *sizes), space=F)  # fmt: skip
    both(f"lp_pool{rank}d", lambda f, x, n=rank: getattr(f, f"lp_pool{n}d")(x, 3.0, 2),
         (1, 2, *sizes), space=F, low=0.3)  # fmt: skip
    both(f"adaptive_avg_pool{rank}d",
         lambda f, x, n=rank: getattr(f, f"adaptive_avg_pool{n}d")(x, 2), (1, 2, *sizes),
         space=F)  # fmt: skip
    both(f"adaptive_max_pool{rank}d",
         lambda f, x, n=rank: getattr(f, f"adaptive_max_pool{n}d")(x, 2), (1, 2, *sizes),
         space=F)  # fmt: skip
    places = np.arange(2**rank).reshape(1, 1, *kernel)
    both(f"max_unpool{rank}d", lambda f, x, i, n=rank: getattr(f, f"max_unpool{n}d")(x, i, 2),
         (1, 1, *kernel), space=F, ints=[places])  # fmt: skip
    if rank > 1:
        samples = np.linspace(0.1, 0.9, 2 * rank).reshape(1, 2, rank)
        row(f"fractional_max_pool{rank}d",
            lambda x, n=rank, s=samples: getattr(ag.ops, f"fractional_max_pool{n}d")(
                x, 2, (2, 1, 2)[:n], _random_samples=s),
            lambda x, n=rank, s=samples: getattr(F, f"fractional_max_pool{n}d")(
                x, 2, (2, 1, 2)[:n], _random_samples=torch.tensor(s, dtype=x.dtype)),
            (1, 2, *sizes))  # fmt: skip
row("global_avg_pool", None, lambda t: F.adaptive_avg_pool2d(t, 1), (2, 3, 4, 5))
row("global_max_pool", None, lambda t: F.adaptive_max_pool2d(t, 1), (2, 3, 4, 5))
row("im2col", lambda x: ag.ops.im2col(x, 2, 1, 1),
    lambda t: F.unfold(t, 2, padding=1).unflatten(2, (5, 6)).permute(0, 2, 3, 1), (1, 2, 4,
    5))  # fmt: skip
row(
    "unfold",
    lambda x: ag.ops.unfold(x, 2, 1, 1, 2),
    lambda t: F.unfold(t, 2, 1, 1, 2),
    (1, 2, 4, 5),
)
row("fold", lambda x: ag.ops.fold(x, (4, 5), 2), lambda t: F.fold(t, (4, 5), 2), (1, 8, 12))
row("col2im", lambda x: ag.ops.col2im(x, (4, 5), 2),
    lambda t: F.fold(t.permute(0, 3, 1, 2).flatten(2), (4, 5), 2), (1, 3, 4, 8))  # fmt: skip
for mode in ("nearest", "bilinear", "bicubic", "area"):
    name = "interpolate" if mode == "bilinear" else f"interpolate {mode}"
    both(name, lambda f, x, mode=mode: f.interpolate(x, (5, 7), mode=mode), (1, 2, 3, 4), space=F)
both(
    "upsample", lambda f, x: f.interpolate(x, scale_factor=2, mode="nearest"), (1, 2, 3, 4), space=F
)
both("affine_grid", lambda f, x: f.affine_grid(x, (2, 1, 3, 4), align_corners=False), (2, 2, 3),
     space=F)  # fmt: skip
for mode in ("bilinear", "nearest", "bicubic"):
    name = "grid_sample" if mode == "bilinear" else f"grid_sample {mode}"
    both(name, lambda f, x, g, mode=mode: f.grid_sample(x, g, mode, "zeros", False), (1, 2, 4, 5),
         (1, 2, 3, 2), space=F, low=-0.9, high=0.9, second=mode == "bilinear")  # fmt: skip
both("pixel_shuffle", lambda f, x: f.pixel_shuffle(x, 2), (1, 4, 2, 3), space=F)
both("pixel_unshuffle", lambda f, x: f.pixel_unshuffle(x, 2), (1, 1, 4, 6), space=F)
both("channel_shuffle", lambda f, x: f.channel_shuffle(x, 2), (1, 4, 2, 3), space=F)
row("embedding", lambda w, i: ag.ops.embedding(i, w), lambda w, i: w[i], (5, 3),
    ints=[[[0, 2], [2, 4]]])  # fmt: skip
row("embedding_bag", lambda w, i: ag.ops.embedding_bag(i, w), lambda w, i: w[i].mean(1),
    (5, 3), ints=[[[0, 2], [2, 4]]])  # fmt: skip
row("batch_norm", lambda x, w, b: ag.ops.batch_norm(x, scale=w, bias=b)[0],
    lambda t, w, b: F.batch_norm(t, None, None, w, b, True), (3, 2, 4), (2,), (2,),
    tolerance=10)  # fmt: skip
row("running_batch_norm", lambda x, w, b: ag.ops.running_batch_norm(
        x, w, b, x.graph.buffer("m", np.ones(2, x.dtype)), x.graph.buffer("v", np.ones(2, x.dtype)),
        training=True),
    lambda t, w, b: F.batch_norm(t, None, None, w, b, True), (3, 2, 4), (2,), (2,),
    tolerance=10)  # fmt: skip
both("layer_norm", lambda f, x, w, b: f.layer_norm(x, (2, 4), w, b), (3, 2, 4), (2, 4), (2, 4),
     space=F, tolerance=10)  # fmt: skip
both("rms_norm", lambda f, x, w: f.rms_norm(x, (4,), w), (3, 4), (4,), space=F, tolerance=10)
both("group_norm", lambda f, x, w, b: f.group_norm(x, 2, w, b), (2, 4, 3), (4,), (4,), space=F,
     tolerance=10)  # fmt: skip
both("instance_norm", lambda f, x, w, b: f.instance_norm(x, weight=w, bias=b), (2, 2, 5), (2,),
     (2,), space=F, tolerance=10)  # fmt: skip
both("local_response_norm", lambda f, x: f.local_response_norm(x, 2), (1, 3, 4), space=F)
both("normalize", lambda f, x: f.normalize(x, 3.0), space=F)
both("cosine_similarity", lambda f, x, y: f.cosine_similarity(x, y, 1), (3, 4), (3, 4), space=F)
both("pairwise_distance", lambda f, x, y: f.pairwise_distance(x, y), (3, 4), (3, 4), space=F,
     tolerance=10)  # fmt: skip
both("scaled_dot_product_attention",
     lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
     (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 2), space=F)  # fmt: skip
row("multi_head_attention",
    lambda q, k, v, w, b, o: ag.ops.multi_head_attention(
        q, k, v, 2, in_proj_weight=w, in_proj_bias=b, out_proj_weight=o),
    lambda *ts: _heads(*ts),
    (2, 3, 4), (2, 3, 4), (2, 3, 4), (12, 4), (12,), (4, 4), tolerance=10)  # fmt: skip


def _heads(q, k, v, w, b, o):
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.multi_head_attention_forward(
            q, k, v, 4, 2, w, b, None, None, False, 0.0, o, None, need_weights=False
        )[0].transpose(0, 1)


CELL = [(2, 3), (2, 2)]
for name, gates in (("rnn_cell", 1), ("gru_cell", 3)):
    row(name, None, lambda *ts, name=name: getattr(torch, name.replace("rnn", "rnn_tanh"))(*ts),
        *CELL, (2 * gates, 3), (2 * gates, 2), (2 * gates,), (2 * gates,))  # fmt: skip
row("lstm_cell", lambda x, h, c, *w: ag.ops.lstm_cell(x, (h, c), *w),
    lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w), *CELL, (2, 2), (8, 3), (8, 2), (8,),
    (8,))  # fmt: skip
OVER_TIME = [(3, 2, 3), (2, 2)]
ONE_LAYER = True, 1, 0.0, False, False, False


def flat(outputs, state):
    return [outputs, *state]


def layer(name, x, first, weights):
    outputs, *last = getattr(torch, name)(x, first, weights, *ONE_LAYER)
    return [outputs, *[state[0] for state in last]]


for name, theirs, gates in (("rnn", "rnn_tanh", 1), ("gru", "gru", 3)):
    row(name, None, lambda x, h, *w, theirs=theirs: layer(theirs, x, h[None], w), *OVER_TIME,
        (2 * gates, 3), (2 * gates, 2), (2 * gates,), (2 * gates,))  # fmt: skip
row("lstm", lambda x, h, c, *w: flat(*ag.ops.lstm(x, (h, c), *w)),
    lambda x, h, c, *w: layer("lstm", x, (h[None], c[None]), w), *OVER_TIME, (2, 2), (8, 3),
    (8, 2), (8,), (8,))  # fmt: skip
row("yolo_decode", lambda x: ag.ops.yolo_decode(x, ANCHORS, (32, 48), 2),
    lambda t: decoded_by_pytorch(torch, t, ANCHORS, (32, 48)), (1, 7 * len(ANCHORS), 2,
    2))  # fmt: skip

# -- losses ---------------------------------------------------------------------------------------

alike("mse:mse_loss l1:l1_loss huber:huber_loss smooth_l1:smooth_l1_loss "
      "hinge_embedding_loss poisson_nll_loss", (3, 4), (3, 4), space=F)  # fmt: skip
row("kl_div", None, lambda t, u: (u * (torch.log(u) - t)).mean(), (3, 4), (3, 4), low=0.1)
row("soft_margin_loss", None, lambda t, u: torch.log1p(torch.exp(-t * u)).mean(), (3, 4), (3, 4))
for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
    row(name, None,
        lambda t, u, w, name=name: (getattr(F, name)(t, u, reduction="none") * w).mean(),
        (3, 4), (3, 4), (4,), low=0.1, high=0.9)  # fmt: skip
alike("gaussian_nll_loss", (3, 4), (3, 4), (3, 4), space=F, low=0.3)
alike("margin_ranking_loss", (3, 4), (3, 4), (3, 4), space=F)
alike("multilabel_soft_margin_loss", (3, 4), (3, 4), space=F, low=0.1, high=0.9)
alike("triplet:triplet_margin_loss triplet_margin_with_distance_loss", (3, 4), (3, 4), (3, 4),
      space=F, tolerance=10)  # fmt: skip
alike("cosine_embedding_loss", (3, 4), (3, 4), space=F, ints=[[1, -1, 1]])
alike("cross_entropy nll:nll_loss", (3, 4), space=F, ints=[CLASSES])
row("nll axis 1", lambda z, t: ag.ops.nll_loss(z, t, WEIGHTS.astype(z.dtype), axis=1),
    lambda z, t: F.nll_loss(z, t, torch.tensor(WEIGHTS, dtype=z.dtype)), (2, 4, 3),
    ints=[[[0, 3, 1], [2, 2, 0]]])  # fmt: skip
row("multi_margin_loss", None,
    lambda t, i: (torch.relu(1 - t.gather(1, i[:, None]) + t).sum(1) - 1).mean() / 4, (3, 4),
    ints=[CLASSES])  # fmt: skip
row("multilabel_margin_loss", None,
    lambda t, i: torch.relu(1 - t[[0, 1], [3, 1]][:, None] + t)[MASK].sum() / 8
    + torch.relu(1 - t[0, 0] + t[0, 1:3]).sum() / 8,
    (2, 4), ints=[[[3, 0, -1, 1], [1, -1, 0, 2]]])  # fmt: skip
row("hinge", lambda x, y: ag.ops.hinge(x, y), lambda t, u: torch.relu(1 - t * u).mean(), (3,), (3,))
row("linear_cross_entropy", lambda x, w, i: ag.ops.linear_cross_entropy(x, w, i),
    lambda x, w, i: F.cross_entropy(x @ w.T, i), (3, 2), (4, 2), ints=[CLASSES])  # fmt: skip
row("pick_neg_log_softmax", None, lambda t, i: F.cross_entropy(t, i, reduction="none"),
    (3, 4), ints=[CLASSES])  # fmt: skip
row("pick_softmax", None, lambda t, i: torch.softmax(t, 1).gather(1, i[:, None])[:, 0], (3, 4),
    ints=[CLASSES])  # fmt: skip
row("pick_neg_log_sigmoid", None, lambda t, i: -F.logsigmoid(t).gather(1, i[:, None])[:, 0], (3, 4),
    low=-30, high=30, ints=[CLASSES])  # fmt: skip
row("ctc_loss", lambda x, i, n, m: ag.ops.ctc_loss(ag.ops.log_softmax(x), i, n, m),
    lambda t, *rest: _over_all_paths(torch.log_softmax(t, 2)), (4, 2, 3),
    ints=[[[1, 2], [2, 2]], [4, 4], [2, 2]])  # fmt: skip


def _over_all_paths(log_probs):
    """Minus the logarithm of what the paths add up to that collapse to the labels."""
    losses = []
    for k, labels in enumerate(([1, 2], [2, 2])):
        paths = [
            path for path in product(range(3), repeat=4)
            if [label for label, _ in groupby(path) if label] == labels
        ]  # fmt: skip
        scores = log_probs[:, k][torch.arange(4), torch.tensor(paths)].sum(1)
        losses.append(-torch.logsumexp(scores, 0) / 2)
    return torch.stack(losses).mean()
