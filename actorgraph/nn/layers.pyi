"""The layers of functions, for editors and type checkers.

Written by `python docs/generate.py`; do not edit.
"""

from typing import Any

from actorgraph.nn.stateless import Stateless

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "BCELoss", "BCEWithLogitsLoss", "CELU", "CTCLoss", "ChannelShuffle", "CosineEmbeddingLoss",
    "CosineSimilarity", "CrossEntropyLoss", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
    "Flatten", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d", "GELU", "GLU",
    "GaussianNLLLoss", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "HingeEmbeddingLoss",
    "HingeLoss", "HuberLoss", "Identity", "KLDivLoss", "L1Loss", "LPPool1d", "LPPool2d", "LPPool3d",
    "LeakyReLU", "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RReLU", "ReLU",
    "ReLU6", "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Sparsemax", "Tanh", "Tanhshrink", "Threshold",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unfold", "Upsample",
]

class AdaptiveAvgPool1d(Stateless):
    """See `ops.adaptive_avg_pool1d`."""

    def __init__(self, output_size: Any) -> None: ...

class AdaptiveAvgPool2d(Stateless):
    """See `ops.adaptive_avg_pool2d`."""

    def __init__(self, output_size: Any) -> None: ...

class AdaptiveAvgPool3d(Stateless):
    """See `ops.adaptive_avg_pool3d`."""

    def __init__(self, output_size: Any) -> None: ...

class AdaptiveMaxPool1d(Stateless):
    """See `ops.adaptive_max_pool1d`."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None: ...

class AdaptiveMaxPool2d(Stateless):
    """See `ops.adaptive_max_pool2d`."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None: ...

class AdaptiveMaxPool3d(Stateless):
    """See `ops.adaptive_max_pool3d`."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None: ...

class AlphaDropout(Stateless):
    """See `ops.alpha_dropout`."""

    def __init__(self, p: float = 0.5) -> None: ...

class AvgPool1d(Stateless):
    """See `ops.avg_pool1d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> None: ...

class AvgPool2d(Stateless):
    """See `ops.avg_pool2d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> None: ...

class AvgPool3d(Stateless):
    """See `ops.avg_pool3d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> None: ...

class BCELoss(Stateless):
    """See `ops.binary_cross_entropy`."""

    def __init__(self, weight: Any = None, reduction: str = 'mean') -> None: ...

class BCEWithLogitsLoss(Stateless):
    """See `ops.bce_with_logits`."""

    def __init__(self, weight: Any = None, pos_weight: Any = None, reduction: str = 'mean') -> None: ...

class CELU(Stateless):
    """See `ops.celu`."""

    def __init__(self, alpha: float = 1.0) -> None: ...

class CTCLoss(Stateless):
    """See `ops.ctc_loss`."""

    def __init__(self, blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False) -> None: ...

class ChannelShuffle(Stateless):
    """See `ops.channel_shuffle`."""

    def __init__(self, groups: int) -> None: ...

class CosineEmbeddingLoss(Stateless):
    """See `ops.cosine_embedding_loss`."""

    def __init__(self, margin: float = 0.0, reduction: str = 'mean') -> None: ...

class CosineSimilarity(Stateless):
    """See `ops.cosine_similarity`."""

    def __init__(self, dim: int = 1, eps: float = 1e-08) -> None: ...

class CrossEntropyLoss(Stateless):
    """See `ops.cross_entropy`; classes are on axis 1."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = 'mean', label_smoothing: float = 0.0) -> None: ...

class Dropout(Stateless):
    """In training, elements zeroed with probability `p`; see `ops.dropout`."""

    def __init__(self, p: float = 0.5) -> None: ...

class Dropout1d(Stateless):
    """See `ops.dropout1d`."""

    def __init__(self, p: float = 0.5) -> None: ...

class Dropout2d(Stateless):
    """See `ops.dropout2d`."""

    def __init__(self, p: float = 0.5) -> None: ...

class Dropout3d(Stateless):
    """See `ops.dropout3d`."""

    def __init__(self, p: float = 0.5) -> None: ...

class ELU(Stateless):
    """See `ops.elu`."""

    def __init__(self, alpha: float = 1.0) -> None: ...

class Flatten(Stateless):
    """Axes from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None: ...

class Fold(Stateless):
    """See `ops.fold`."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None: ...

class FractionalMaxPool2d(Stateless):
    """See `ops.fractional_max_pool2d`."""

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None) -> None: ...

class FractionalMaxPool3d(Stateless):
    """See `ops.fractional_max_pool3d`."""

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None) -> None: ...

class GELU(Stateless):
    """See `ops.gelu`."""

    def __init__(self, approximate: str = 'none') -> None: ...

class GLU(Stateless):
    """See `ops.glu`."""

    def __init__(self, dim: int = -1) -> None: ...

class GaussianNLLLoss(Stateless):
    """See `ops.gaussian_nll_loss`."""

    def __init__(self, full: bool = False, eps: float = 1e-06, reduction: str = 'mean') -> None: ...

class Hardshrink(Stateless):
    """See `ops.hardshrink`."""

    def __init__(self, lambd: float = 0.5) -> None: ...

class Hardsigmoid(Stateless):
    """See `ops.hardsigmoid`."""

    def __init__(self) -> None: ...

class Hardswish(Stateless):
    """See `ops.hardswish`."""

    def __init__(self) -> None: ...

class Hardtanh(Stateless):
    """See `ops.hardtanh`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None: ...

class HingeEmbeddingLoss(Stateless):
    """See `ops.hinge_embedding_loss`."""

    def __init__(self, margin: float = 1.0, reduction: str = 'mean') -> None: ...

class HingeLoss(Stateless):
    """See `ops.hinge_loss`."""

    def __init__(self, margin: float = 1.0, reduction: str = 'mean') -> None: ...

class HuberLoss(Stateless):
    """See `ops.huber_loss`."""

    def __init__(self, reduction: str = 'mean', delta: float = 1.0) -> None: ...

class Identity(Stateless):
    """What it is called on."""

    def __init__(self) -> None: ...

class KLDivLoss(Stateless):
    """See `ops.kl_div`."""

    def __init__(self, reduction: str = 'mean', log_target: bool = False) -> None: ...

class L1Loss(Stateless):
    """See `ops.l1_loss`."""

    def __init__(self, reduction: str = 'mean') -> None: ...

class LPPool1d(Stateless):
    """See `ops.lp_pool1d`."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None: ...

class LPPool2d(Stateless):
    """See `ops.lp_pool2d`."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None: ...

class LPPool3d(Stateless):
    """See `ops.lp_pool3d`."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None: ...

class LeakyReLU(Stateless):
    """See `ops.leaky_relu`."""

    def __init__(self, negative_slope: float = 0.01) -> None: ...

class LocalResponseNorm(Stateless):
    """See `ops.local_response_norm`."""

    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> None: ...

class LogSigmoid(Stateless):
    """See `ops.logsigmoid`."""

    def __init__(self) -> None: ...

class LogSoftmax(Stateless):
    """See `ops.log_softmax`."""

    def __init__(self, dim: int = -1) -> None: ...

class MSELoss(Stateless):
    """See `ops.mse_loss`."""

    def __init__(self, reduction: str = 'mean') -> None: ...

class MarginRankingLoss(Stateless):
    """See `ops.margin_ranking_loss`."""

    def __init__(self, margin: float = 0.0, reduction: str = 'mean') -> None: ...

class MaxPool1d(Stateless):
    """See `ops.max_pool1d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> None: ...

class MaxPool2d(Stateless):
    """See `ops.max_pool2d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> None: ...

class MaxPool3d(Stateless):
    """See `ops.max_pool3d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> None: ...

class MaxUnpool1d(Stateless):
    """See `ops.max_unpool1d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> None: ...

class MaxUnpool2d(Stateless):
    """See `ops.max_unpool2d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> None: ...

class MaxUnpool3d(Stateless):
    """See `ops.max_unpool3d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> None: ...

class Mish(Stateless):
    """See `ops.mish`."""

    def __init__(self) -> None: ...

class MultiLabelMarginLoss(Stateless):
    """See `ops.multilabel_margin_loss`."""

    def __init__(self, reduction: str = 'mean') -> None: ...

class MultiLabelSoftMarginLoss(Stateless):
    """See `ops.multilabel_soft_margin_loss`."""

    def __init__(self, weight: Any = None, reduction: str = 'mean') -> None: ...

class MultiMarginLoss(Stateless):
    """See `ops.multi_margin_loss`."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = 'mean') -> None: ...

class NLLLoss(Stateless):
    """See `ops.nll_loss`; classes are on axis 1."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = 'mean') -> None: ...

class PairwiseDistance(Stateless):
    """See `ops.pairwise_distance`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdims: bool = False) -> None: ...

class PixelShuffle(Stateless):
    """See `ops.pixel_shuffle`."""

    def __init__(self, upscale_factor: int) -> None: ...

class PixelUnshuffle(Stateless):
    """See `ops.pixel_unshuffle`."""

    def __init__(self, downscale_factor: int) -> None: ...

class PoissonNLLLoss(Stateless):
    """See `ops.poisson_nll_loss`."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-08, reduction: str = 'mean') -> None: ...

class RReLU(Stateless):
    """See `ops.rrelu`."""

    def __init__(self, lower: float = 0.125, upper: float = 0.3333333333333333) -> None: ...

class ReLU(Stateless):
    """``max(x, 0)``."""

    def __init__(self) -> None: ...

class ReLU6(Stateless):
    """``min(max(x, 0), 6)``."""

    def __init__(self) -> None: ...

class SELU(Stateless):
    """See `ops.selu`."""

    def __init__(self) -> None: ...

class SiLU(Stateless):
    """``x sigmoid(x)``."""

    def __init__(self) -> None: ...

class Sigmoid(Stateless):
    """``1 / (1 + exp(-x))``."""

    def __init__(self) -> None: ...

class SmoothL1Loss(Stateless):
    """See `ops.smooth_l1_loss`."""

    def __init__(self, reduction: str = 'mean', beta: float = 1.0) -> None: ...

class SoftMarginLoss(Stateless):
    """See `ops.soft_margin_loss`."""

    def __init__(self, reduction: str = 'mean') -> None: ...

class Softmax(Stateless):
    """See `ops.softmax`."""

    def __init__(self, dim: int = -1) -> None: ...

class Softmax2d(Stateless):
    """Softmax over the channels of each place of images."""

    def __init__(self) -> None: ...

class Softmin(Stateless):
    """See `ops.softmin`."""

    def __init__(self, dim: int = -1) -> None: ...

class Softplus(Stateless):
    """See `ops.softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = ...) -> None: ...

class Softshrink(Stateless):
    """See `ops.softshrink`."""

    def __init__(self, lambd: float = 0.5) -> None: ...

class Softsign(Stateless):
    """See `ops.softsign`."""

    def __init__(self) -> None: ...

class Sparsemax(Stateless):
    """See `ops.sparsemax`."""

    def __init__(self, dim: int = -1) -> None: ...

class Tanh(Stateless):
    """See `ops.tanh`."""

    def __init__(self) -> None: ...

class Tanhshrink(Stateless):
    """See `ops.tanhshrink`."""

    def __init__(self) -> None: ...

class Threshold(Stateless):
    """See `ops.threshold`."""

    def __init__(self, threshold: float, value: float) -> None: ...

class TripletMarginLoss(Stateless):
    """See `ops.triplet_margin_loss`."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, reduction: str = 'mean') -> None: ...

class TripletMarginWithDistanceLoss(Stateless):
    """See `ops.triplet_margin_with_distance_loss`."""

    def __init__(self, distance_function: Any = None, margin: float = 1.0, swap: bool = False, reduction: str = 'mean') -> None: ...

class Unfold(Stateless):
    """See `ops.unfold`."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None: ...

class Upsample(Stateless):
    """See `ops.interpolate`."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> None: ...
