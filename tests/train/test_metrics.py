"""Metrics over batches are those over all rows at once, by definition written out."""

from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests._each import each

ROWS, CLASSES = 61, 5
rng = np.random.default_rng(3)
SCORES = rng.normal(size=(ROWS, CLASSES)).astype("float32")
TARGET = rng.integers(0, CLASSES, ROWS)
TAKEN = SCORES.argmax(axis=1)


def in_batches(metric, prediction, target):
    metric.reset()
    metric.update(prediction[:7], target[:7])  # of what was before, nothing may stay
    metric.reset()
    for start, stop in pairwise((0, 1, 20, ROWS)):
        metric.update(prediction[start:stop], target[start:stop])
    return metric.compute()


def f1_of(kind):
    right = np.sum((kind == TAKEN) & (kind == TARGET))
    precision, recall = right / np.sum(kind == TAKEN), right / np.sum(kind == TARGET)
    return 2 * precision * recall / (precision + recall)


def log_softmax(scores):
    scores = scores.astype("float64")
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


CASES = {
    "accuracy": (ag.train.Accuracy(), np.mean(TAKEN == TARGET)),
    "top 2": (
        ag.train.TopK(2),
        np.mean([t in np.argsort(-s)[:2] for s, t in zip(SCORES, TARGET, strict=True)]),
    ),
    "macro": (ag.train.F1(), np.mean([f1_of(kind) for kind in range(CLASSES)])),
    "weighted": (
        ag.train.F1("weighted"),
        sum(f1_of(kind) * np.mean(kind == TARGET) for kind in range(CLASSES)),
    ),
    "micro": (ag.train.F1("micro"), np.mean(TAKEN == TARGET)),
    "perplexity": (
        ag.train.Perplexity(),
        np.exp(-np.mean(log_softmax(SCORES)[np.arange(ROWS), TARGET])),
    ),
}


@each("case", CASES)
def test_a_metric_of_classes_is_that_of_all_rows(case):
    metric, wanted = CASES[case]
    assert in_batches(metric, SCORES, TARGET) == pytest.approx(wanted, rel=1e-6)


def test_confusion_counts_what_was_taken_for_what():
    wanted = np.zeros((CLASSES, CLASSES), int)
    np.add.at(wanted, (TARGET, TAKEN), 1)
    np.testing.assert_array_equal(in_batches(ag.train.Confusion(), SCORES, TARGET), wanted)


def test_errors_of_numbers_are_means_over_all_entries():
    other = rng.normal(size=SCORES.shape)
    assert in_batches(ag.train.MSE(), SCORES, other) == pytest.approx(
        np.mean((SCORES - other) ** 2)
    )
    assert in_batches(ag.train.MAE(), SCORES, other) == pytest.approx(np.mean(abs(SCORES - other)))


@pytest.mark.parametrize("name", ["accuracy", "f1", "perplexity", "top 2"])
def test_ignored_targets_do_not_count(name):
    metric = {**{k: m for k, (m, _) in CASES.items()}, "f1": ag.train.F1()}[name]
    alone = in_batches(metric, SCORES, TARGET)
    metric.reset()
    metric.update(np.concatenate([SCORES, SCORES]), np.concatenate([TARGET, np.full(ROWS, -100)]))
    assert metric.compute() == pytest.approx(alone)


def test_probabilities_are_compared_with_a_threshold():
    metric = ag.train.Accuracy(threshold=0.0)
    metric.update(np.array([-1.0, 2.0, 3.0]), np.array([0, 1, 0]))
    assert metric.compute() == pytest.approx(2 / 3)


def test_a_span_is_right_where_begin_end_and_kind_are():
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    metric = ag.train.SpanF1(tags)
    #                  PER......... LOC        the second span is one longer, the third of its kind
    wanted = np.array([[1, 2, 2, 0, 3, 0, 1, 2]])
    taken = np.array([[1, 2, 2, 0, 3, 4, 1, 2]])
    metric.update(np.eye(5)[taken], wanted)
    assert metric.compute() == pytest.approx(2 * 2 / (3 + 3))
    metric.update(np.array([[2, 2, 3, 0]]), np.array([[1, 2, 3, -100]]))  # I- opens one
    assert metric.compute() == pytest.approx(2 * 4 / (5 + 5))


def test_a_function_is_a_metric_by_its_mean_over_rows():
    def off_by(prediction, target):
        return np.abs(prediction - target).max()

    (metric,) = ag.train.metrics.metrics_of([off_by])
    assert metric.name == "off_by"
    metric.update(np.array([1.0, 2.0]), np.array([0.0, 0.0]))
    metric.update(np.array([5.0]), np.array([0.0]))
    assert metric.compute() == pytest.approx((2 * 2 + 5) / 3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["acuracy"], "there is no metric 'acuracy'; did you mean 'accuracy'"),
        (["mse", "mse"], "two figures are named 'mse'"),
        ([3], "a metric is a name, a Metric or a function, got 3"),
        ([ag.train.MSE], "a metric is a name, a Metric or a function"),
    ],
)
def test_what_is_no_metric_is_refused(given, told):
    with pytest.raises(GraphError, match=told):
        ag.train.metrics.metrics_of(given)


def test_predictions_of_another_shape_are_refused():
    with pytest.raises(GraphError, match=r"predictions of shape \(2, 3, 4\) do not fit targets"):
        ag.train.Accuracy().update(np.zeros((2, 3, 4)), np.zeros(2, int))
