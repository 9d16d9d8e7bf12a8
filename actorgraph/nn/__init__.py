"""Neural networks: parameters, modules, layers, and initial values of weights."""

from typing import Any

from actorgraph import ops as functional
from actorgraph.errors import no_name
from actorgraph.nn import _shown, init, models
from actorgraph.nn.attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from actorgraph.nn.containers import Lambda, ModuleDict, ModuleList, Sequential
from actorgraph.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from actorgraph.nn.init import manual_seed
from actorgraph.nn.linear import Bilinear, Embedding, Linear, PReLU
from actorgraph.nn.module import Module
from actorgraph.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)
from actorgraph.nn.recurrent import GRU, LSTM, RNN, TreeLSTM
from actorgraph.nn.stateless import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AlphaDropout,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BCELoss,
    BCEWithLogitsLoss,
    ChannelShuffle,
    CosineEmbeddingLoss,
    CosineSimilarity,
    CrossEntropyLoss,
    CTCLoss,
    Dropout,
    Dropout1d,
    Dropout2d,
    Flatten,
    Fold,
    GaussianNLLLoss,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    HingeEmbeddingLoss,
    HuberLoss,
    Identity,
    KLDivLoss,
    L1Loss,
    LeakyReLU,
    LocalResponseNorm,
    LogSigmoid,
    LogSoftmax,
    LPPool1d,
    LPPool2d,
    MarginRankingLoss,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    Mish,
    MSELoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PairwiseDistance,
    PixelShuffle,
    PixelUnshuffle,
    PoissonNLLLoss,
    ReLU,
    ReLU6,
    RReLU,
    Sigmoid,
    SiLU,
    SmoothL1Loss,
    SoftMarginLoss,
    Softmax,
    Softmax2d,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Stateless,
    Tanh,
    Tanhshrink,
    Threshold,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
    Unfold,
    Upsample,
)
from actorgraph.parameters import Buffer, Parameter

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d",
    "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Bilinear",
    "Buffer", "CELU", "CTCLoss", "ChannelShuffle", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "CosineEmbeddingLoss", "CosineSimilarity",
    "CrossEntropyLoss", "Dropout", "Dropout1d", "Dropout2d", "ELU", "Embedding", "Flatten",
    "Fold", "GELU", "GLU", "GRU", "GaussianNLLLoss", "GroupNorm", "Hardshrink", "Hardsigmoid",
    "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "Identity", "InstanceNorm1d",
    "InstanceNorm2d", "KLDivLoss", "L1Loss", "LPPool1d", "LPPool2d", "LSTM", "Lambda",
    "LayerNorm", "LeakyReLU", "Linear", "LocalResponseNorm", "LogSigmoid", "LogSoftmax",
    "MSELoss", "MarginRankingLoss", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d",
    "MaxUnpool2d", "Mish", "Module", "ModuleDict", "ModuleList", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "MultiheadAttention", "NLLLoss",
    "PReLU", "PairwiseDistance", "Parameter", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss",
    "RMSNorm", "RNN", "RReLU", "ReLU", "ReLU6", "SELU", "Sequential", "SiLU", "Sigmoid",
    "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "Stateless", "Tanh", "Tanhshrink", "Threshold", "TransformerDecoderLayer",
    "TransformerEncoderLayer", "TreeLSTM", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    "Unfold", "Upsample", "functional", "init", "manual_seed", "models",
]  # fmt: skip
__dir__ = __all__.copy

_shown.document(globals())


def __getattr__(name: str) -> Any:
    raise no_name("ag.nn", name, __all__)
