"""Neural networks: parameters, modules, layers, and initial values of weights."""

from actorgraph import ops as functional
from actorgraph.nn import init, stateless
from actorgraph.nn._draws import manual_seed
from actorgraph.nn.attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from actorgraph.nn.containers import Lambda, ModuleDict, ModuleList, Sequential
from actorgraph.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from actorgraph.nn.linear import Bilinear, Embedding, Linear
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
from actorgraph.nn.stateless import *  # noqa: F403
from actorgraph.parameters import Buffer, Parameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "Bilinear", "Buffer", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "Embedding", "GRU", "GroupNorm", "InstanceNorm1d",
    "InstanceNorm2d", "LSTM", "Lambda", "LayerNorm", "Linear", "Module", "ModuleDict", "ModuleList",
    "MultiheadAttention", "Parameter", "RMSNorm", "RNN", "Sequential", "TransformerDecoderLayer",
    "TransformerEncoderLayer", "TreeLSTM", "functional", "init", "manual_seed",
]  # fmt: skip
__all__ = [*sorted([*__all__, *stateless.__all__])]
