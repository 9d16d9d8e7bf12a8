"""Training: a trainer, metrics, callbacks, and the history of figures."""

from actorgraph.train.average import EMA
from actorgraph.train.callbacks import (
    CSV,
    Callback,
    Checkpoint,
    EarlyStopping,
    LearningRate,
    Progress,
    TensorBoard,
)
from actorgraph.train.history import History
from actorgraph.train.metrics import (
    F1,
    MAE,
    MSE,
    Accuracy,
    Confusion,
    MeanOf,
    Metric,
    Perplexity,
    SpanF1,
    TopK,
)
from actorgraph.train.trainer import Trainer

__all__ = [
    "Accuracy", "CSV", "Callback", "Checkpoint", "Confusion", "EMA", "EarlyStopping", "F1",
    "History", "LearningRate", "MAE", "MSE", "MeanOf", "Metric", "Perplexity", "Progress", "SpanF1",
    "TensorBoard", "TopK", "Trainer",
]  # fmt: skip
__dir__ = __all__.copy
