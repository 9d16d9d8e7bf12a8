"""Functions without parameters as modules: activations, losses, dropout, pools, and shapes.

Each class is a function of `actorgraph.ops`; what its constructor takes are the function's
settings, under PyTorch's names.  Editors and type checkers read the classes in ``layers.pyi``,
which ``docs/generate.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph import ops
from actorgraph.nn.stateless import Stateless
from actorgraph.node import Node


def _same(x: Node) -> Node:
    return x


# Classes are on axis 1, as in PyTorch, and on the last of a single row.


def _cross_entropy(
    x: Node, targets: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Node:  # fmt: skip
    classes = getattr(targets, "dtype", np.dtype(int)).kind in "iu"
    return ops.cross_entropy(
        x, targets, weight, ignore_index=ignore_index if classes else None, reduction=reduction,
        label_smoothing=label_smoothing, axis=min(1, x.ndim - 1),
    )  # fmt: skip


def _nll_loss(
    x: Node, targets: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Node:
    return ops.nll_loss(
        x, targets, weight, ignore_index=ignore_index, reduction=reduction, axis=min(1, x.ndim - 1)
    )


def _flatten(x: Node, start_dim: int = 1, end_dim: int = -1) -> Node:
    return ops.flatten(x, start_dim, end_dim)


_OF: dict[int, dict[str, Callable[..., Any]]] = {
    1: {
        "ReLU": ops.relu, "ReLU6": ops.relu6, "ELU": ops.elu, "CELU": ops.celu, "SELU": ops.selu,
        "GELU": ops.gelu, "SiLU": ops.silu, "Mish": ops.mish, "Sigmoid": ops.sigmoid,
        "Tanh": ops.tanh, "Hardshrink": ops.hardshrink, "Hardsigmoid": ops.hardsigmoid,
        "Hardswish": ops.hardswish, "Hardtanh": ops.hardtanh, "LeakyReLU": ops.leaky_relu,
        "Softshrink": ops.softshrink, "Threshold": ops.threshold, "LogSigmoid": ops.logsigmoid,
        "Softplus": ops.softplus, "Softsign": ops.softsign, "Tanhshrink": ops.tanhshrink,
        "RReLU": ops.rrelu, "GLU": ops.glu, "Softmax": ops.softmax,
        "Softmax2d": lambda x: ops.softmax(x, -3),
        "Softmin": ops.softmin, "LogSoftmax": ops.log_softmax, "Identity": _same,
        "Dropout": ops.dropout, "Dropout1d": ops.dropout1d, "Dropout2d": ops.dropout2d,
        "Dropout3d": ops.dropout3d, "Sparsemax": ops.sparsemax,
        "AlphaDropout": ops.alpha_dropout, "MaxPool1d": ops.max_pool1d, "MaxPool2d": ops.max_pool2d,
        "MaxPool3d": ops.max_pool3d, "AvgPool1d": ops.avg_pool1d, "AvgPool2d": ops.avg_pool2d,
        "AvgPool3d": ops.avg_pool3d, "LPPool1d": ops.lp_pool1d, "LPPool2d": ops.lp_pool2d,
        "LPPool3d": ops.lp_pool3d, "FractionalMaxPool2d": ops.fractional_max_pool2d,
        "FractionalMaxPool3d": ops.fractional_max_pool3d,
        "AdaptiveAvgPool1d": ops.adaptive_avg_pool1d, "AdaptiveAvgPool2d": ops.adaptive_avg_pool2d,
        "AdaptiveAvgPool3d": ops.adaptive_avg_pool3d, "AdaptiveMaxPool1d": ops.adaptive_max_pool1d,
        "AdaptiveMaxPool2d": ops.adaptive_max_pool2d, "AdaptiveMaxPool3d": ops.adaptive_max_pool3d,
        "Flatten": _flatten, "Upsample": ops.interpolate, "PixelShuffle": ops.pixel_shuffle,
        "PixelUnshuffle": ops.pixel_unshuffle, "ChannelShuffle": ops.channel_shuffle,
        "LocalResponseNorm": ops.local_response_norm, "Unfold": ops.unfold, "Fold": ops.fold,
    },
    2: {
        "CrossEntropyLoss": _cross_entropy, "NLLLoss": _nll_loss, "MSELoss": ops.mse_loss,
        "L1Loss": ops.l1_loss, "SmoothL1Loss": ops.smooth_l1_loss, "HuberLoss": ops.huber_loss,
        "BCELoss": ops.binary_cross_entropy, "BCEWithLogitsLoss": ops.bce_with_logits,
        "KLDivLoss": ops.kl_div, "PoissonNLLLoss": ops.poisson_nll_loss,
        "HingeEmbeddingLoss": ops.hinge_embedding_loss, "MultiMarginLoss": ops.multi_margin_loss,
        "MultiLabelMarginLoss": ops.multilabel_margin_loss,
        "MultiLabelSoftMarginLoss": ops.multilabel_soft_margin_loss,
        "SoftMarginLoss": ops.soft_margin_loss, "CosineSimilarity": ops.cosine_similarity,
        "PairwiseDistance": ops.pairwise_distance, "HingeLoss": ops.hinge_loss,
        "MaxUnpool1d": ops.max_unpool1d, "MaxUnpool2d": ops.max_unpool2d,
        "MaxUnpool3d": ops.max_unpool3d,
    },
    3: {
        "GaussianNLLLoss": ops.gaussian_nll_loss, "MarginRankingLoss": ops.margin_ranking_loss,
        "CosineEmbeddingLoss": ops.cosine_embedding_loss,
        "TripletMarginLoss": ops.triplet_margin_loss,
        "TripletMarginWithDistanceLoss": ops.triplet_margin_with_distance_loss,
    },
    4: {
        "CTCLoss": ops.ctc_loss,
    },
}  # fmt: skip
"""The function of each class, by the number of its inputs."""

_SAID = {
    "ReLU": "``max(x, 0)``.",
    "ReLU6": "``min(max(x, 0), 6)``.",
    "SiLU": "``x sigmoid(x)``.",
    "Sigmoid": "``1 / (1 + exp(-x))``.",
    "Softmax2d": "Softmax over the channels of each place of images.",
    "Identity": "What it is called on.",
    "CrossEntropyLoss": "See `ops.cross_entropy`; classes are on axis 1.",
    "NLLLoss": "See `ops.nll_loss`; classes are on axis 1.",
    "Dropout": "In training, elements zeroed with probability `p`; see `ops.dropout`.",
    "Flatten": "Axes from `start_dim` to `end_dim` as one.",
}
"""What a class is, where "see its function" is not all."""

for _inputs, _functions in _OF.items():
    for _name, _function in _functions.items():
        _said = {
            "__doc__": _SAID.get(_name, f"See `ops.{_function.__name__}`."), "__module__": __name__,
        }  # fmt: skip
        globals()[_name] = type(Stateless)(_name, (Stateless,), _said, of=_function, inputs=_inputs)

__all__ = sorted(name for functions in _OF.values() for name in functions)  # noqa: PLE0605 - of the table
