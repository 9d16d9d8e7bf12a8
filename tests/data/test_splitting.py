import numpy as np
import pytest

import actorgraph as ag
from actorgraph.data import ArrayDataset, moons, spirals, train_test_split


def test_parts_to_train_and_test_on_are_disjoint_complete_and_aligned():
    rows = np.arange(40)
    train, test, train_twice, test_twice = train_test_split(rows, rows * 2, seed=3)
    assert (len(train), len(test)) == (30, 10)
    assert sorted([*train, *test]) == rows.tolist()
    assert np.array_equal(train * 2, train_twice)
    assert np.array_equal(test * 2, test_twice)


def test_a_split_depends_on_its_seed_alone():
    first, again, other = (train_test_split(np.arange(40), seed=seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_split_that_does_not_shuffle_tests_on_the_last_rows():
    train, test = train_test_split(np.arange(4), test_size=0.5, shuffle=False)
    assert (train.tolist(), test.tolist()) == ([0, 1], [2, 3])


def test_a_dataset_is_split_into_datasets():
    train, test = train_test_split(ArrayDataset(np.ones((4, 2)), np.arange(4)))
    assert (len(train), len(test)) == (3, 1)
    assert test[0][1] not in train[:][1]


def test_a_split_that_leaves_a_part_empty_raises():
    with pytest.raises(ValueError, match="test_size=0.1 of 3 rows leaves a part empty"):
        train_test_split(np.ones(3), test_size=0.1)


@pytest.mark.parametrize("arrays", [(), (np.ones(2), np.ones(3)), (np.float32(1),)])
def test_a_dataset_of_unequal_lengths_raises(arrays):
    with pytest.raises(ag.ShapeError, match="expected one or more of equal length"):
        ArrayDataset(*arrays)


@pytest.mark.parametrize("make", [moons, spirals])
def test_toy_sets_are_those_of_their_seed(make):
    points, labels = make(30, seed=4)
    assert (points.shape, points.dtype, labels.dtype) == ((30, 2), np.float32, np.int64)
    assert np.array_equal(points, make(30, seed=4)[0])
    assert not np.array_equal(points, make(30, seed=5)[0])


def test_toy_sets_have_the_form_that_their_names_say():
    points, labels = moons(noise=0.0)
    middle = np.where(labels[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    assert np.allclose(np.hypot(*(points - middle).T), 1.0, atol=1e-6)
    points, labels = spirals(300, classes=3, noise=0.0)
    radius, angle = np.hypot(*points.T), np.arctan2(*points.T[::-1])
    turned = (angle - 2 * np.pi * (labels / 3 + 0.75 * radius)) % (2 * np.pi)
    assert np.allclose(np.minimum(turned, 2 * np.pi - turned), 0.0, atol=1e-4)
    assert np.bincount(labels).tolist() == [100, 100, 100]
