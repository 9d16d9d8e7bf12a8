import hashlib

import numpy as np
import pytest

from actorgraph.data import book, digits, iris, split


def test_digits_have_the_promised_shapes_dtypes_and_range():
    images, labels = digits()
    assert (images.shape, images.dtype) == ((1797, 64), np.float32)
    assert (labels.shape, labels.dtype) == ((1797,), np.int64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_each_call_returns_arrays_of_its_own():
    first, _ = digits()
    first[:] = 0.0
    assert digits()[0].any()


def test_split_is_the_same_on_every_machine():
    (_, train_labels), (_, test_labels) = split(*digits())
    assert (len(train_labels), len(test_labels)) == (1438, 359)
    digest = hashlib.sha256(test_labels.astype("<i8").tobytes()).hexdigest()
    assert digest[:16] == "672b4cab99211aed"


def test_split_parts_are_disjoint_complete_and_aligned():
    rows = np.arange(100)
    (train, train_twice), (test, test_twice) = split(rows, rows * 2, test_fraction=0.3)
    assert len(test) == 30
    assert sorted([*train, *test]) == rows.tolist()
    assert np.array_equal(train * 2, train_twice)
    assert np.array_equal(test * 2, test_twice)


@pytest.mark.parametrize("arrays", [(), (np.ones(2), np.ones(3))])
def test_split_of_unequal_lengths_raises(arrays):
    with pytest.raises(ValueError, match="expected one or more of equal length"):
        split(*arrays)


@pytest.mark.parametrize("fraction", [0.0, 1.0, float("nan")])
def test_split_of_nothing_raises(fraction):
    with pytest.raises(ValueError, match="expected a number between 0 and 1"):
        split(np.ones(3), test_fraction=fraction)


def test_irises_are_those_of_fisher():
    measures, species = iris()
    assert (measures.shape, measures.dtype, species.dtype) == ((150, 4), np.float64, np.int64)
    assert np.bincount(species).tolist() == [50, 50, 50]
    means = [measures[species == kind].mean(axis=0).round(3).tolist() for kind in range(3)]
    assert means == [  # as in table 1 of the paper
        [5.006, 3.428, 1.462, 0.246], [5.936, 2.77, 4.26, 1.326], [6.588, 2.974, 5.552, 2.026],
    ]  # fmt: skip


def test_the_book_is_whole_and_has_lines_of_plain_ascii():
    text = book()
    assert (len(text), len(set(text)), text.count("CHAPTER ")) == (148425, 70, 12)
    assert text.lstrip().startswith("ALICE'S ADVENTURES IN WONDERLAND\n\n")
    assert text.endswith("THE END\n")
    assert max(map(len, text.splitlines())) == 72
    assert set(text) <= {"\n", *map(chr, range(32, 127))}
