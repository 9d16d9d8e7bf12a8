"""Neural networks: parameters, modules, layers, and initial values of weights."""

from typing import Any

from actorgraph import ops as functional
from actorgraph.errors import no_name
from actorgraph.nn import _shown, init, layers, models
from actorgraph.nn.adaptive import AdaptiveLogSoftmaxWithLoss
from actorgraph.nn.attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from actorgraph.nn.cells import GRUCell, LSTMCell, RNNCell
from actorgraph.nn.containers import Lambda, ModuleDict, ModuleList, Sequential
from actorgraph.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from actorgraph.nn.init import manual_seed
from actorgraph.nn.layers import *
from actorgraph.nn.linear import Bilinear, Embedding, Linear, LinearCrossEntropyLoss, PReLU
from actorgraph.nn.module import Module
from actorgraph.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from actorgraph.nn.recurrent import GRU, LSTM, RNN, TreeLSTM
from actorgraph.nn.stateless import Stateless
from actorgraph.parameters import Buffer, Parameter

__all__ = [
    "AdaptiveLogSoftmaxWithLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Buffer",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "Embedding", "GRU", "GRUCell", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LSTM", "LSTMCell", "Lambda", "LayerNorm", "Linear", "LinearCrossEntropyLoss",
    "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "PReLU", "Parameter", "RMSNorm",
    "RNN", "RNNCell", "Sequential", "Stateless", "TransformerDecoderLayer",
    "TransformerEncoderLayer", "TreeLSTM", "functional", "init", "manual_seed", "models",
]  # fmt: skip
__all__ += layers.__all__
__all__.sort()
__dir__ = __all__.copy

_shown.document(globals())


def __getattr__(name: str) -> Any:
    raise no_name("ag.nn", name, __all__)
