"""Metrics: the quality of predictions over all batches of an epoch."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from actorgraph.errors import GraphError, near_names, shown
from actorgraph.keywords import Answering
from actorgraph.options import choice, positive

Array = np.ndarray[Any, Any]

IGNORED = -100
"""The class of targets to ignore, as in PyTorch."""


class Metric(Answering, ABC):
    """A figure over all predictions and targets of an epoch; subclass it for your own.

    Attributes
    ----------
    name : str
        The key in the history.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> class Largest(ag.train.Metric):
    ...     name = "largest"
    ...     def reset(self):
    ...         self._found = float("nan")
    ...     def update(self, prediction, target):
    ...         self._found = float(np.fmax(self._found, np.max(prediction)))
    ...     def compute(self):
    ...         return self._found
    >>> metric = Largest()
    >>> metric.reset()
    >>> metric.update(np.array([1.0, 3.0]), None)
    >>> metric.compute()
    3.0
    """

    name = "metric"

    @abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    @abstractmethod
    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch: the outputs of the model and the targets, as arrays."""

    @abstractmethod
    def compute(self) -> Any:
        """Return the figure of all batches since `reset`; NaN if there was none."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: attributes whose names begin with an underscore."""
        return {name: value for name, value in vars(self).items() if name.startswith("_")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        vars(self).update(state)


class _Mean(Metric):
    """A mean over entries."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._total, self._count = 0.0, 0

    def compute(self) -> float:
        """Return `of_mean` of the mean."""
        return self.of_mean(self._total / self._count if self._count else float("nan"))

    def of_mean(self, mean: float) -> float:
        """Return the figure; by default the mean."""
        return mean

    def _add(self, values: Array) -> None:
        self._total += float(values.sum(dtype=np.float64))
        self._count += values.size


@final
class MeanOf(_Mean):
    """The mean of a function of predictions and targets, over rows.

    Parameters
    ----------
    function : callable
        ``(prediction, target) -> number or array``; a number holds for all rows of a batch.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.MeanOf(lambda prediction, target: np.abs(prediction - target).mean())
    >>> metric.update(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    >>> metric.compute()
    1.0
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function, self.name = function, getattr(function, "__name__", "function")

    def update(self, prediction: Any, target: Any) -> None:
        value = np.asarray(self.function(prediction, target))
        if value.ndim:
            self._add(value)
        else:
            rows = len(target) if np.ndim(target) else 1
            self._total, self._count = self._total + float(value) * rows, self._count + rows


def _classes(prediction: Array, target: Array, threshold: float) -> Array:
    """Return classes: the largest score of the last axis, or numbers above a threshold."""
    if prediction.ndim == target.ndim + 1:
        found: Array = prediction.argmax(axis=-1)
        return found
    if prediction.shape != target.shape:
        raise GraphError(
            f"predictions of shape {prediction.shape} do not fit targets of shape {target.shape}: "
            "expected one more axis, of classes, or the same shape"
        )
    return prediction > threshold if prediction.dtype.kind == "f" else prediction


def _counting(prediction: Any, target: Any, threshold: float = 0.5) -> tuple[Array, Array]:
    """Return classes and targets as 1-d arrays, without ignored ones."""
    target = np.asarray(target)
    found = _classes(np.asarray(prediction), target, threshold)
    if target.dtype.kind in "iu":
        counts = target != IGNORED
        if not counts.all():
            return found[counts], target[counts]
    return found.ravel(), target.ravel()


@final
class Accuracy(_Mean):
    """Share of correct classes; targets of -100 are ignored.

    Parameters
    ----------
    threshold : float
        If predictions have the shape of the targets, those above it are class 1.

    Examples
    --------
    >>> import actorgraph as ag
    >>> metric = ag.train.Accuracy()
    >>> metric.update(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
    >>> metric.compute()
    0.5
    """

    name = "accuracy"

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def update(self, prediction: Any, target: Any) -> None:
        found, wanted = _counting(prediction, target, self.threshold)
        self._total += float(np.count_nonzero(found == wanted))
        self._count += wanted.size


@final
class TopK(_Mean):
    """Share of targets among the `k` classes of largest score; also named ``"top_5"``.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.TopK(2)
    >>> metric.update(np.array([[0.1, 0.9, 0.0], [0.5, 0.2, 0.3]]), np.array([1, 2]))
    >>> metric.compute()
    1.0
    """

    def __init__(self, k: int = 5) -> None:
        super().__init__()
        self.k, self.name = positive("k", k), f"top_{k}"

    def update(self, prediction: Any, target: Any) -> None:
        target = np.asarray(target)
        counts = target != IGNORED
        scores, wanted = np.asarray(prediction)[counts], target[counts]
        better = (scores > np.take_along_axis(scores, wanted[:, None], axis=1)).sum(axis=1)
        self._add(better < self.k)


@final
class MSE(_Mean):
    """Mean squared error.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.MSE()
    >>> metric.update(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    >>> metric.compute()
    2.0
    """

    name = "mse"

    def update(self, prediction: Any, target: Any) -> None:
        self._add(np.abs(np.subtract(prediction, target)) ** 2)


@final
class MAE(_Mean):
    """Mean absolute error.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.MAE()
    >>> metric.update(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    >>> metric.compute()
    1.0
    """

    name = "mae"

    def update(self, prediction: Any, target: Any) -> None:
        self._add(np.abs(np.subtract(prediction, target)))


@final
class Perplexity(_Mean):
    """``exp`` of the mean cross entropy of logits, in nats; targets of -100 are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.Perplexity()
    >>> metric.update(np.zeros((2, 4)), np.array([1, 3]))
    >>> round(metric.compute(), 3)
    4.0
    """

    name = "perplexity"

    def update(self, prediction: Any, target: Any) -> None:
        target = np.asarray(target)
        counts = target != IGNORED
        logits, wanted = np.asarray(prediction, np.float64)[counts], target[counts]
        most = logits.max(axis=-1, initial=-np.inf)
        total = np.log(np.exp(logits - most[:, None]).sum(axis=-1)) + most
        self._add(total - np.take_along_axis(logits, wanted[:, None], axis=1)[:, 0])

    def of_mean(self, mean: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(mean))


class _ClassCounts(Metric):
    """A confusion matrix, which grows with the classes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._matrix = np.zeros((0, 0), np.int64)

    def update(self, prediction: Any, target: Any) -> None:
        found, wanted = _counting(prediction, target)
        if not wanted.size:
            return
        found, wanted = found.astype(np.int64), wanted.astype(np.int64)
        if min(found.min(), wanted.min()) < 0:
            raise GraphError("classes are numbers from 0; those to ignore are -100")
        scores = np.shape(prediction)[-1] if np.ndim(prediction) > np.ndim(target) else 2
        many = max(scores, int(found.max()) + 1, int(wanted.max()) + 1, len(self._matrix))
        matrix = np.bincount(wanted * many + found, minlength=many * many).reshape(many, many)
        matrix[: len(self._matrix), : len(self._matrix)] += self._matrix
        self._matrix = matrix


@final
class Confusion(_ClassCounts):
    """Confusion matrix: how often each class (a row) was predicted as which (a column).

    Examples
    --------
    >>> import actorgraph as ag
    >>> metric = ag.train.Confusion()
    >>> metric.update(np.array([0, 1, 1]), np.array([0, 0, 1]))
    >>> metric.compute()
    array([[1, 1],
           [0, 1]])
    """

    name = "confusion"

    def compute(self) -> Array:
        return self._matrix


@final
class F1(_ClassCounts):
    """Harmonic mean of precision and recall.

    Parameters
    ----------
    average : {"macro", "micro", "weighted", "binary"}
        Mean over classes that occur, of all counts, weighted by targets, or class 1 alone.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> metric = ag.train.F1()
    >>> metric.update(np.array([0, 1, 1]), np.array([0, 0, 1]))
    >>> round(metric.compute(), 3)
    0.667
    """

    name = "f1"

    def __init__(self, average: str = "macro") -> None:
        super().__init__()
        self.average = choice("average", average, ("macro", "micro", "weighted", "binary"))

    def compute(self) -> float:
        """Return the score; 0 if nothing is correct."""
        matrix = self._matrix
        if not matrix.size:
            return float("nan")
        right, taken, wanted = matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1)
        if self.average == "micro":
            return float(right.sum() / matrix.sum())
        occur = (taken + wanted) > 0
        scores = 2 * right / np.maximum(taken + wanted, 1)
        if self.average == "binary":
            return float(scores[1])
        weights = wanted[occur] if self.average == "weighted" else None
        return float(np.average(scores[occur], weights=weights))


@final
class SpanF1(Metric):
    """F1 of whole spans of tags: one is correct if its begin, end and kind are.

    Parameters
    ----------
    tags : sequence of str
        The tag of each class: ``"O"``, ``"B-kind"`` begins a span, ``"I-kind"`` continues it, or
        begins one if none of the kind is open.

    Examples
    --------
    >>> import actorgraph as ag
    >>> metric = ag.train.SpanF1(["O", "B-name", "I-name"])
    >>> metric.update(np.array([[1, 2, 0, 1]]), np.array([[1, 2, 0, 0]]))
    >>> round(metric.compute(), 3)
    0.667
    """

    name = "span_f1"

    def __init__(self, tags: Sequence[str]) -> None:
        wrong = [tag for tag in tags if not re.fullmatch(r"O|[BI]-.+", tag)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no tag; expected 'O', 'B-kind' or 'I-kind'")
        self.tags = list(tags)
        self.reset()

    def reset(self) -> None:
        self._right = self._taken = self._wanted = 0

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch of rows of classes; targets of -100 are removed from their row."""
        target = np.asarray(target)
        found = _classes(np.asarray(prediction), target, 0.5)
        for ours, theirs in zip(np.atleast_2d(found), np.atleast_2d(target), strict=True):
            counts = theirs != IGNORED
            taken, wanted = self._spans(ours[counts]), self._spans(theirs[counts])
            self._right += len(taken & wanted)
            self._taken, self._wanted = self._taken + len(taken), self._wanted + len(wanted)

    def compute(self) -> float:
        """Return the score; 0 if nothing is correct."""
        both = self._taken + self._wanted
        return 2 * self._right / both if both else 0.0

    def _spans(self, row: Array) -> set[tuple[int, int, str]]:
        spans, begin, open_kind = set(), 0, ""
        for place, tag in enumerate([*[self.tags[int(one)] for one in row], "O"]):
            kind = tag[2:]
            if open_kind and (tag[0] != "I" or kind != open_kind):
                spans.add((begin, place, open_kind))
                open_kind = ""
            if kind and not open_kind:
                begin, open_kind = place, kind
        return spans


_NAMED: dict[str, Callable[[], Metric]] = {
    metric.name: metric for metric in (Accuracy, F1, MSE, MAE, Confusion, Perplexity)
}


def _metric_of(given: Any) -> Metric:
    """Return a metric for a name, such as "accuracy" or "top_5", for a function, or unchanged.

    Raises
    ------
    GraphError
        There is none of that name.
    """
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        top = re.fullmatch(r"top_?([1-9]\d*)", given)
        if top:
            return TopK(int(top[1]))
        if given in _NAMED:
            return _NAMED[given]()
        known = [*_NAMED, "top_5"]
        raise GraphError(f"there is no metric {given!r}{near_names(given, known)}; there are "
                         f"{', '.join(known)}, and functions (prediction, target)")  # fmt: skip
    if isinstance(given, type) or not callable(given):
        raise GraphError(f"a metric is a name, a Metric or a function, got {shown(given)}")
    return MeanOf(given)


def metrics_of(given: Iterable[Any]) -> list[Metric]:
    """Return metrics with distinct names.

    Raises
    ------
    GraphError
        Two have the same name, or one is named "loss".
    """
    if isinstance(given, (str, Metric)):
        given = [given]
    found = [_metric_of(one) for one in given]
    names = [metric.name for metric in found]
    twice = [name for name in names if names.count(name) > 1 or name == "loss"]
    if twice:
        raise GraphError(f"two figures are named {twice[0]!r}; give a metric another `name`")
    return found
