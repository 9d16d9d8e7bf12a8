"""Examples of layers whose docstrings have none of their own: one call of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actorgraph.ops._foreign import with_example

_LIKE = {
    "()(x)": """AlphaDropout CELU Dropout ELU Flatten GELU Hardshrink Hardsigmoid Hardswish Hardtanh
        Identity LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid
        Softmax Softmin Softplus Softshrink Softsign Sparsemax Tanh Tanhshrink""",
    "()(x, y)": """BCELoss BCEWithLogitsLoss CosineSimilarity HingeEmbeddingLoss HingeLoss HuberLoss
        KLDivLoss L1Loss MSELoss MultiLabelSoftMarginLoss PairwiseDistance PoissonNLLLoss
        SmoothL1Loss SoftMarginLoss""",
    "()(x, t)": "CrossEntropyLoss MultiMarginLoss NLLLoss",
    "()(x, y, z)": "GaussianNLLLoss TripletMarginLoss TripletMarginWithDistanceLoss",
    "()(x, y, t)": "CosineEmbeddingLoss", "()(v, w, v)": "MarginRankingLoss",
    "()(x, i[None] + t[:, None])": "MultiLabelMarginLoss", "()(k, t[:, None], t, t)": "CTCLoss",
    "()(a)": "Dropout1d GLU", "()(b)": "Dropout2d Softmax2d", "(0.1, 0.0)(x)": "Threshold",
    "(2)(a)": "AdaptiveAvgPool1d AdaptiveMaxPool1d AvgPool1d InstanceNorm1d MaxPool1d",
    "(2)(b)": """AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d BatchNorm2d ChannelShuffle
        InstanceNorm2d LocalResponseNorm MaxPool2d PixelUnshuffle Unfold""",
    "()(d)": "Dropout3d", "(2)(d)": """AdaptiveAvgPool3d AdaptiveMaxPool3d AvgPool3d BatchNorm3d
        InstanceNorm3d MaxPool3d""",
    "(2, 2)(a)": "LPPool1d", "(2, 2)(b)": "FractionalMaxPool2d GroupNorm LPPool2d",
    "(2, 2)(d)": "FractionalMaxPool3d LPPool3d",
    "(2)(*ag.nn.MaxPool1d(2, return_indices=True)(a))": "MaxUnpool1d",
    "(2)(*ag.nn.MaxPool2d(2, return_indices=True)(b))": "MaxUnpool2d",
    "(2)(*ag.nn.MaxPool3d(2, return_indices=True)(d))": "MaxUnpool3d",
    "((8, 8), 2)(ag.nn.Unfold(2)(b))": "Fold", "(scale_factor=2)(b)": "Upsample",
    "(2)(ag.ops.concatenate([b, b], axis=1))": "PixelShuffle",
    "(2, 4, 3)(a)": "Conv1d ConvTranspose1d", "(2, 4, 3)(b)": "Conv2d ConvTranspose2d",
    "(2, 4, 3)(d)": "Conv3d ConvTranspose3d", "(10, 4)(t)": "Embedding",
    "(3, 3, 4)(x, y)": "Bilinear",
    "(3)(x)": "BatchNorm1d LayerNorm RMSNorm", "(3, 4)(k)": "GRU LSTM RNN",
    "(8, 2)(a, a, a)": "MultiheadAttention", "(8, 2)(a)": "TransformerEncoderLayer",
    "(8, 2)(a, a)": "TransformerDecoderLayer", "(ag.ops.tanh)(x)": "Lambda",
    "([ag.nn.Linear(3, 4)])[0](x)": "ModuleList",
    "({'one': ag.nn.Linear(3, 4)})['one'](x)": "ModuleDict",
}  # fmt: skip
"""The calls, written behind the name; letters are the placeholders of `ops._foreign`."""


def document(layers: Mapping[str, Any]) -> None:
    """Add an example to the docstrings of these classes, by their names."""
    for call, names in _LIKE.items():
        for name in names.split():
            layer = layers[name]
            layer.__doc__ = with_example(layer.__doc__ or "", f"ag.nn.{name}", call)
