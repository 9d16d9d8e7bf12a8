import gc
import json
import math
import os
import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.data import ArrayDataset, DataLoader
from tests._each import each
from tests._soak import drawn

WORKERS = (0, 1, 3)


class Stream:
    """An iterable without `len` and subscripts; counts what was read."""

    def __init__(self, count):
        self.count, self.read = count, 0

    def __iter__(self):
        for number in range(self.count):
            self.read += 1
            yield number


def kinds(count):
    return ArrayDataset(np.arange(count)), [*range(count)], Stream(count)


def batches(loader):
    return [np.asarray(batch).ravel().tolist() for batch in loader]


def threads():
    return [one for one in threading.enumerate() if one.name.startswith("actorgraph-loader-")]


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threads())
    yield
    gc.collect()
    for thread in set(threads()) - before:
        thread.join(10)
        assert not thread.is_alive()


# -- what comes -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_a_batch_of_a_dataset_of_arrays_is_a_tuple_of_arrays(workers):
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    first, second, third = DataLoader(ArrayDataset(x, y), batch_size=2, workers=workers)
    assert isinstance(first, tuple)
    assert np.array_equal(second[0], x[2:4])
    assert np.array_equal(third[1], [4])


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ([1, 2, 3], [1, 2]),
        (np.ones((3, 4), "float32"), np.ones((2, 4), "float32")),
        (range(3), [0, 1]),
        ({5}, [5]),
    ],
)
def test_a_batch_of_a_plain_sequence_is_an_array(dataset, expected):
    batch = next(iter(DataLoader(dataset, batch_size=2)))
    assert isinstance(batch, np.ndarray)
    assert batch.dtype == np.asarray(expected).dtype
    assert np.array_equal(batch, expected)


def test_samples_that_are_tuples_and_dicts_are_stacked_part_by_part():
    samples = [({"image": np.full(3, k), "name": f"n{k}"}, float(k)) for k in range(4)]
    parts, values = next(iter(DataLoader(samples, batch_size=4)))
    assert parts["image"].shape == (4, 3)
    assert parts["name"].tolist() == ["n0", "n1", "n2", "n3"]
    assert values.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("workers", WORKERS)
def test_transform_takes_samples_and_collate_takes_lists_of_them(workers):
    loader = DataLoader(
        ArrayDataset(np.arange(4)), batch_size=2, workers=workers, transform=sum, collate=sorted
    )
    assert [*loader] == [[0, 1], [2, 3]]


@given(
    count=st.integers(0, 12), size=st.integers(1, 5), drop=st.booleans(), shuffle=st.booleans(),
    kind=st.integers(0, 2), workers=st.sampled_from(WORKERS), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@drawn(20, soak=200)
def test_an_epoch_has_each_sample_once_in_an_order_that_the_seed_decides(
    count, size, drop, shuffle, kind, workers, seed
):
    def made(workers):
        return DataLoader(
            kinds(count)[kind], size, shuffle, seed=seed, drop_last=drop, workers=workers,
            shuffle_buffer=4,
        )  # fmt: skip

    loader, alone = made(workers), made(0)
    for _ in range(2):
        found = batches(loader)
        assert found == batches(alone)
        flat = [one for batch in found for one in batch]
        assert len(set(flat)) == len(flat) == (count // size * size if drop else count)
        assert all(len(batch) == size for batch in found[:-1])
        if kind < 2:
            assert len(loader) == len(found)
        if not shuffle:
            assert flat == [*range(len(flat))]


@pytest.mark.parametrize("kind", range(3))
def test_each_epoch_has_an_order_of_its_own(kind):
    loader = DataLoader(kinds(100)[kind], 100, shuffle=True)
    first, second = batches(loader), batches(loader)
    assert first != second
    assert sorted(first[0]) == sorted(second[0]) == [*range(100)]
    assert batches(DataLoader(kinds(100)[kind], 100, shuffle=True)) == first


def test_no_more_batches_wait_than_asked_for():
    dataset, made = [*range(100)], []
    loader = DataLoader(dataset, workers=2, prefetch=3, transform=made.append, collate=len)
    iterator = iter(loader)
    for taken in range(1, 10):
        next(iterator)
        assert len(made) <= taken + 6
    iterator.close()


def test_workers_make_batches_while_others_wait():
    both = threading.Barrier(2, timeout=20)

    def meet(sample):
        both.wait()
        return sample

    assert batches(DataLoader([0, 1, 2, 3], workers=2, transform=meet)) == [[0], [1], [2], [3]]


def test_a_batch_that_is_slow_keeps_its_place():
    second_is_made = threading.Event()

    def waiting(sample):
        if sample == 0:
            assert second_is_made.wait(20)
        if sample == 1:
            second_is_made.set()
        return sample

    assert batches(DataLoader([0, 1, 2], workers=2, transform=waiting)) == [[0], [1], [2]]


def test_len_of_samples_without_a_length_raises():
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Stream(3)))


# -- going on ---------------------------------------------------------------------------------


@each("workers", WORKERS)
@each("kind", range(3))
@each("consumed", [0, 1, 3, 4])
def test_a_loaded_state_gives_the_rest_of_the_epoch_and_then_the_next(kind, workers, consumed):
    def made(workers):
        return DataLoader(kinds(11)[kind], 3, shuffle=True, seed=5, workers=workers)

    whole = made(0)
    batches(whole)
    second, third = batches(whole), batches(whole)
    stopped = made(workers)
    batches(stopped)
    iterator = iter(stopped)
    for _ in islice(iterator, consumed):
        pass
    state = json.loads(json.dumps(stopped.state_dict()))
    resumed = made(3 - workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert batches(resumed) == second[consumed:]
    assert batches(resumed) == third


def test_batches_that_were_made_ahead_do_not_count():
    loader = DataLoader([*range(9)], 3, workers=2, prefetch=2)
    iterator = iter(loader)
    assert loader.state_dict()["batches"] == 0
    next(iterator)
    assert loader.state_dict()["batches"] == 1
    iterator.close()


def test_an_epoch_that_ended_counts():
    loader = DataLoader([1, 2])
    batches(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)
    assert loader.progress == (1, 0)
    next(iter(loader))
    assert loader.progress == (1, 1)


def test_a_loop_after_one_that_was_left_begins_another_epoch():
    loader = DataLoader([*range(50)], 50, shuffle=True)
    first = np.asarray(next(iter(loader))).tolist()
    assert [first] != batches(loader)
    assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"seed": 1}, "seed is 0, here 1"),
        ({"batch_size": 3}, "batch_size is 2, here 3"),
        ({"dataset": [1, 2, 3]}, "samples is 4, here 3"),
    ],
)
def test_a_state_of_another_order_raises_and_changes_nothing(changes, match):
    given = {"dataset": [1, 2, 3, 4], "batch_size": 2}
    other = DataLoader(**{**given, **changes})
    before = other.state_dict()
    with pytest.raises(ag.GraphError, match=match):
        other.load_state_dict(DataLoader(**given).state_dict())
    assert other.state_dict() == before


@each("state", [None, {}, [], {"epoch": "1", "batches": 0, "settings": {}}, {"epoch": 1}])
def test_what_is_no_state_raises(state):
    with pytest.raises(ag.GraphError, match="expected a result of state_dict"):
        DataLoader([1]).load_state_dict(state)


def test_a_state_before_the_first_epoch_raises():
    loader = DataLoader([1])
    with pytest.raises(ag.GraphError, match="no loader has been at batch 0 of epoch -1"):
        loader.load_state_dict({**loader.state_dict(), "epoch": -1})


# -- processes --------------------------------------------------------------------------------


def test_processes_make_the_same_batches_in_order_and_name_the_sample_that_fails():
    # Functions of light modules, which a process imports at once.
    samples = [*range(12), -1]
    loader = DataLoader(samples, 3, workers=2, process=True, transform=math.sqrt)
    iterator, alone = iter(loader), DataLoader(samples, 3, transform=math.sqrt)
    assert [next(iterator).tolist() for _ in range(4)] == [
        batch.tolist() for batch in islice(alone, 4)
    ]
    with pytest.raises(ag.GraphError, match="sample 12 failed: ValueError: math domain error"):
        next(iterator)
    with pytest.raises(ag.GraphError, match="a process that makes batches has ended"):
        batches(DataLoader([1], workers=1, process=True, transform=os._exit))


def test_what_cannot_be_pickled_is_refused_before_any_process_begins():
    with pytest.raises(ag.GraphError, match="the loader cannot be sent to a process: .*no lambdas"):
        batches(DataLoader([1], workers=1, process=True, transform=lambda one: one))
    with pytest.raises(ValueError, match="give workers="):
        DataLoader([1], process=True)


# -- failures ---------------------------------------------------------------------------------


@each("workers", WORKERS)
@each("kind", range(3))
def test_an_error_names_the_sample_in_the_place_of_its_batch(kind, workers):
    def refuse(sample):
        if sample in (7, (7,)):
            raise KeyError("unreadable")
        return sample

    iterator = iter(DataLoader(kinds(10)[kind], 2, workers=workers, transform=refuse))
    assert len([*islice(iterator, 3)]) == 3
    with pytest.raises(ag.GraphError, match="sample 7 failed: KeyError: 'unreadable'") as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, KeyError)
    assert [*iterator] == []


@pytest.mark.parametrize("workers", WORKERS)
def test_an_iterable_that_fails_names_the_sample_that_it_was_to_give(workers):
    def failing():
        yield 1
        raise OSError("disk")

    with pytest.raises(ag.GraphError, match="reading sample 1 failed: OSError: disk"):
        batches(DataLoader(failing(), workers=workers))


@pytest.mark.parametrize("workers", WORKERS)
def test_samples_that_do_not_fit_together_are_named(workers):
    samples = [np.ones(2), np.ones(3)]
    with pytest.raises(ag.GraphError, match="samples 0, 1 make no batch.*give collate="):
        batches(DataLoader(samples, 2, workers=workers))


@pytest.mark.parametrize("workers", WORKERS)
def test_an_exit_in_a_sample_comes_out_where_the_batch_is_taken(workers):
    def leave(sample):
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        batches(DataLoader([1], workers=workers, transform=leave))


def test_an_iteration_that_is_dropped_reads_no_more():
    stream = Stream(1000)
    iterator = iter(DataLoader(stream, workers=2))
    next(iterator)
    del iterator
    gc.collect()
    for thread in threads():
        thread.join(10)
    assert stream.read <= 1 + 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_iteration_that_was_begun_before_a_fork_says_so_in_the_child():
    loader = DataLoader([*range(100)], workers=1)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except ag.GraphError as error:
            fresh = batches(loader)
            os._exit(0 if "do not exist after a fork" in str(error) and len(fresh) == 100 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    iterator.close()


@each(
    "keywords, match",
    [
        ({"batch_size": 0}, "batch_size must be an int of at least 1, got 0"),
        ({"workers": -1}, "workers must be from 0 to below 65,536, got -1"),
        ({"prefetch": 0}, "prefetch must be an int of at least 1"),
        ({"seed": -1}, "seed must be from 0 to below"),
        ({"shuffle": "no"}, "shuffle must be True or False, got 'no'"),
    ],
)
def test_settings_that_make_no_sense_raise(keywords, match):
    with pytest.raises(ValueError, match=match):
        DataLoader([1], **keywords)


@pytest.mark.parametrize("dataset", [5, {"x": [1]}, None])
def test_what_has_no_samples_raises(dataset):
    with pytest.raises(ag.GraphTypeError, match="expected a sequence or an iterable of samples"):
        DataLoader(dataset)
