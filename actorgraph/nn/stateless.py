"""Functions without parameters as modules: activations, losses, dropout, pools, and shapes.

Each class is one function of `actorgraph.ops`; what the constructor takes are the function's
settings, under PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

import numpy as np

from actorgraph import ops
from actorgraph.errors import GraphTypeError
from actorgraph.keywords import advice
from actorgraph.nn._sized import settings
from actorgraph.nn.module import Module
from actorgraph.node import Node

_RENAMED = {"axis": "dim"}


class Stateless(Module):
    """Base of modules that apply one function.

    A subclass says ``of=function`` and how many ``inputs`` it is called on.
    Further parameters of the function are settings; one named ``training`` is the module's mode.

    Examples
    --------
    >>> import actorgraph as ag
    >>> class Scale(ag.nn.Stateless, of=lambda x, factor=2.0: x * factor):
    ...     "Its input times a factor."
    >>> Scale(factor=3.0)
    Scale(factor=3.0)
    """

    _of: ClassVar[Callable[..., Any]]
    _names: ClassVar[dict[str, str]]  # of settings, as the function calls them, and as we do
    _trains: ClassVar[bool]
    __signature__: ClassVar[Signature]

    def __init_subclass__(cls, of: Callable[..., Any] | None = None, inputs: int = 1) -> None:
        super().__init_subclass__()
        if of is None:
            return
        known = [*signature(of).parameters.values()][inputs:]
        cls._of, cls._trains = staticmethod(of), any(one.name == "training" for one in known)
        known = [one for one in known if one.name != "training"]
        cls._names = {one.name: _RENAMED.get(one.name, one.name) for one in known}
        cls.__signature__ = Signature(
            [
                Parameter(
                    cls._names[one.name], Parameter.POSITIONAL_OR_KEYWORD,
                    default=one.default
                )
                for one in known
            ]
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            name, known = type(self).__name__, self.__signature__
            told = advice(name, known.parameters, kwargs)
            raise told or GraphTypeError(f"{name}{known}: {error}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def forward(self, *args: Any) -> Any:
        """Return what the function makes of the arguments and the settings."""
        chosen = {name: getattr(self, ours) for name, ours in self._names.items()}
        if self._trains:
            chosen["training"] = self.training
        return type(self)._of(*args, **chosen)

    def extra_repr(self) -> str:
        """Return the settings; see `Module.extra_repr`."""
        return settings(self)


# -- activations ------------------------------------------------------------------------------


class ReLU(Stateless, of=ops.relu):
    """``max(x, 0)``."""


class ReLU6(Stateless, of=ops.relu6):
    """``min(max(x, 0), 6)``."""


class ELU(Stateless, of=ops.elu):
    """See `ops.elu`."""


class CELU(Stateless, of=ops.celu):
    """See `ops.celu`."""


class SELU(Stateless, of=ops.selu):
    """See `ops.selu`."""


class GELU(Stateless, of=ops.gelu):
    """See `ops.gelu`."""


class SiLU(Stateless, of=ops.silu):
    """``x sigmoid(x)``."""


class Mish(Stateless, of=ops.mish):
    """See `ops.mish`."""


class Sigmoid(Stateless, of=ops.sigmoid):
    """``1 / (1 + exp(-x))``."""


class Tanh(Stateless, of=ops.tanh):
    """See `ops.tanh`."""


class Hardshrink(Stateless, of=ops.hardshrink):
    """See `ops.hardshrink`."""


class Hardsigmoid(Stateless, of=ops.hardsigmoid):
    """See `ops.hardsigmoid`."""


class Hardswish(Stateless, of=ops.hardswish):
    """See `ops.hardswish`."""


class Hardtanh(Stateless, of=ops.hardtanh):
    """See `ops.hardtanh`."""


class LeakyReLU(Stateless, of=ops.leaky_relu):
    """See `ops.leaky_relu`."""


class Softshrink(Stateless, of=ops.softshrink):
    """See `ops.softshrink`."""


class Threshold(Stateless, of=ops.threshold):
    """See `ops.threshold`."""


class LogSigmoid(Stateless, of=ops.logsigmoid):
    """See `ops.logsigmoid`."""


class Softplus(Stateless, of=ops.softplus):
    """See `ops.softplus`."""


class Softsign(Stateless, of=ops.softsign):
    """See `ops.softsign`."""


class Tanhshrink(Stateless, of=ops.tanhshrink):
    """See `ops.tanhshrink`."""


class RReLU(Stateless, of=ops.rrelu):
    """See `ops.rrelu`."""


class GLU(Stateless, of=ops.glu):
    """See `ops.glu`."""


class Softmax(Stateless, of=ops.softmax):
    """See `ops.softmax`."""


def _over_channels(x: Node) -> Node:
    return ops.softmax(x, -3)


class Softmax2d(Stateless, of=_over_channels):
    """Softmax over the channels of each place of images."""


class Softmin(Stateless, of=ops.softmin):
    """See `ops.softmin`."""


class LogSoftmax(Stateless, of=ops.log_softmax):
    """See `ops.log_softmax`."""


def _same(x: Node) -> Node:
    return x


class Identity(Stateless, of=_same):
    """What it is called on."""


# -- losses -----------------------------------------------------------------------------------


# Classes are on axis 1, as in PyTorch, and on the last of a single row.


def _cross_entropy(
    x: Node,
    targets: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Node:
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


class CrossEntropyLoss(Stateless, of=_cross_entropy, inputs=2):
    """See `ops.cross_entropy`; classes are on axis 1."""


class NLLLoss(Stateless, of=_nll_loss, inputs=2):
    """See `ops.nll_loss`; classes are on axis 1."""


class MSELoss(Stateless, of=ops.mse_loss, inputs=2):
    """See `ops.mse_loss`."""


class L1Loss(Stateless, of=ops.l1_loss, inputs=2):
    """See `ops.l1_loss`."""


class SmoothL1Loss(Stateless, of=ops.smooth_l1_loss, inputs=2):
    """See `ops.smooth_l1_loss`."""


class HuberLoss(Stateless, of=ops.huber_loss, inputs=2):
    """See `ops.huber_loss`."""


class BCELoss(Stateless, of=ops.binary_cross_entropy, inputs=2):
    """See `ops.binary_cross_entropy`."""


class BCEWithLogitsLoss(Stateless, of=ops.bce_with_logits, inputs=2):
    """See `ops.bce_with_logits`."""


class KLDivLoss(Stateless, of=ops.kl_div, inputs=2):
    """See `ops.kl_div`."""


class PoissonNLLLoss(Stateless, of=ops.poisson_nll_loss, inputs=2):
    """See `ops.poisson_nll_loss`."""


class GaussianNLLLoss(Stateless, of=ops.gaussian_nll_loss, inputs=3):
    """See `ops.gaussian_nll_loss`."""


class HingeEmbeddingLoss(Stateless, of=ops.hinge_embedding_loss, inputs=2):
    """See `ops.hinge_embedding_loss`."""


class MarginRankingLoss(Stateless, of=ops.margin_ranking_loss, inputs=3):
    """See `ops.margin_ranking_loss`."""


class CosineEmbeddingLoss(Stateless, of=ops.cosine_embedding_loss, inputs=3):
    """See `ops.cosine_embedding_loss`."""


class TripletMarginLoss(Stateless, of=ops.triplet_margin_loss, inputs=3):
    """See `ops.triplet_margin_loss`."""


class TripletMarginWithDistanceLoss(Stateless, of=ops.triplet_margin_with_distance_loss, inputs=3):
    """See `ops.triplet_margin_with_distance_loss`."""


class MultiMarginLoss(Stateless, of=ops.multi_margin_loss, inputs=2):
    """See `ops.multi_margin_loss`."""


class MultiLabelMarginLoss(Stateless, of=ops.multilabel_margin_loss, inputs=2):
    """See `ops.multilabel_margin_loss`."""


class MultiLabelSoftMarginLoss(Stateless, of=ops.multilabel_soft_margin_loss, inputs=2):
    """See `ops.multilabel_soft_margin_loss`."""


class SoftMarginLoss(Stateless, of=ops.soft_margin_loss, inputs=2):
    """See `ops.soft_margin_loss`."""


class CTCLoss(Stateless, of=ops.ctc_loss, inputs=4):
    """See `ops.ctc_loss`."""


class CosineSimilarity(Stateless, of=ops.cosine_similarity, inputs=2):
    """See `ops.cosine_similarity`."""


class PairwiseDistance(Stateless, of=ops.pairwise_distance, inputs=2):
    """See `ops.pairwise_distance`."""


# -- dropout ----------------------------------------------------------------------------------


class Dropout(Stateless, of=ops.dropout):
    """In training, elements zeroed with probability `p`; see `ops.dropout`."""


class Dropout1d(Stateless, of=ops.dropout1d):
    """See `ops.dropout1d`."""


class Dropout2d(Stateless, of=ops.dropout2d):
    """See `ops.dropout2d`."""


class AlphaDropout(Stateless, of=ops.alpha_dropout):
    """See `ops.alpha_dropout`."""


# -- pools ------------------------------------------------------------------------------------


class MaxPool1d(Stateless, of=ops.max_pool1d):
    """See `ops.max_pool1d`."""


class MaxPool2d(Stateless, of=ops.max_pool2d):
    """See `ops.max_pool2d`."""


class MaxPool3d(Stateless, of=ops.max_pool3d):
    """See `ops.max_pool3d`."""


class MaxUnpool1d(Stateless, of=ops.max_unpool1d, inputs=2):
    """See `ops.max_unpool1d`."""


class MaxUnpool2d(Stateless, of=ops.max_unpool2d, inputs=2):
    """See `ops.max_unpool2d`."""


class AvgPool1d(Stateless, of=ops.avg_pool1d):
    """See `ops.avg_pool1d`."""


class AvgPool2d(Stateless, of=ops.avg_pool2d):
    """See `ops.avg_pool2d`."""


class AvgPool3d(Stateless, of=ops.avg_pool3d):
    """See `ops.avg_pool3d`."""


class LPPool1d(Stateless, of=ops.lp_pool1d):
    """See `ops.lp_pool1d`."""


class LPPool2d(Stateless, of=ops.lp_pool2d):
    """See `ops.lp_pool2d`."""


class AdaptiveAvgPool1d(Stateless, of=ops.adaptive_avg_pool1d):
    """See `ops.adaptive_avg_pool1d`."""


class AdaptiveAvgPool2d(Stateless, of=ops.adaptive_avg_pool2d):
    """See `ops.adaptive_avg_pool2d`."""


class AdaptiveAvgPool3d(Stateless, of=ops.adaptive_avg_pool3d):
    """See `ops.adaptive_avg_pool3d`."""


class AdaptiveMaxPool1d(Stateless, of=ops.adaptive_max_pool1d):
    """See `ops.adaptive_max_pool1d`."""


class AdaptiveMaxPool2d(Stateless, of=ops.adaptive_max_pool2d):
    """See `ops.adaptive_max_pool2d`."""


class AdaptiveMaxPool3d(Stateless, of=ops.adaptive_max_pool3d):
    """See `ops.adaptive_max_pool3d`."""


# -- shapes -----------------------------------------------------------------------------------


def _flatten(x: Node, start_dim: int = 1, end_dim: int = -1) -> Node:
    return ops.flatten(x, start_dim, end_dim)


class Flatten(Stateless, of=_flatten):
    """Axes from `start_dim` to `end_dim` as one."""


class Upsample(Stateless, of=ops.interpolate):
    """See `ops.interpolate`."""


class PixelShuffle(Stateless, of=ops.pixel_shuffle):
    """See `ops.pixel_shuffle`."""


class PixelUnshuffle(Stateless, of=ops.pixel_unshuffle):
    """See `ops.pixel_unshuffle`."""


class ChannelShuffle(Stateless, of=ops.channel_shuffle):
    """See `ops.channel_shuffle`."""


class LocalResponseNorm(Stateless, of=ops.local_response_norm):
    """See `ops.local_response_norm`."""


class Unfold(Stateless, of=ops.unfold):
    """See `ops.unfold`."""


class Fold(Stateless, of=ops.fold):
    """See `ops.fold`."""
