"""Neural networks: parameters, modules, layers, and initial values of weights."""

from typing import Any

from actorgraph import ops as functional
from actorgraph.errors import no_name
from actorgraph.nn import _shown, init, layers, models
from actorgraph.nn.attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from actorgraph.nn.containers import Lambda, ModuleDict, ModuleList, Sequential
from actorgraph.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from actorgraph.nn.init import manual_seed
from actorgraph.nn.layers import *
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
from actorgraph.nn.stateless import Stateless
from actorgraph.parameters import Buffer, Parameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "Bilinear", "Buffer", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "Embedding", "GRU", "GroupNorm", "InstanceNorm1d",
    "InstanceNorm2d", "LSTM", "Lambda", "LayerNorm", "Linear", "Module", "ModuleDict", "ModuleList",
    "MultiheadAttention", "PReLU", "Parameter", "RMSNorm", "RNN", "Sequential", "Stateless",
    "TransformerDecoderLayer", "TransformerEncoderLayer", "TreeLSTM", "functional", "init",
    "manual_seed", "models",
]  # fmt: skip
__all__ += layers.__all__
__all__.sort()
__dir__ = __all__.copy

_shown.document(globals())


def __getattr__(name: str) -> Any:
    raise no_name("ag.nn", name, __all__)
