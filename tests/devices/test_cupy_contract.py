"""Small facts about CuPy that `devices/cuda.py` and ops rely on.

On the stand-in where there is no GPU, and unchanged on CuPy itself where there is one: a fact that
fails there is a fault of the stand-in first.
"""

import contextlib
import importlib
import sys

import numpy as np
import pytest

import tests._cupy as stand_in
from actorgraph.devices.kernels import ElementKernel, combine_in_order


def _has_gpu():
    try:
        return importlib.import_module("cupy").cuda.is_available()
    except ImportError:
        return False


@pytest.fixture
def cp(monkeypatch):
    if not _has_gpu():
        for name, module in stand_in.MODULES.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(stand_in, "world", stand_in.World(4, gpus=2))
    return importlib.import_module("cupy")


@pytest.fixture
def cupyx(cp):
    return importlib.import_module("cupyx")


@pytest.fixture
def stream(cp):
    with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True) as stream:
        yield stream


def test_an_event_that_was_never_recorded_counts_as_passed(cp, stream):
    event = cp.cuda.Event(block=True, disable_timing=True)
    assert cp.cuda.runtime.eventQuery(event.ptr) == 0
    stream.wait_event(event)
    event.synchronize()


def test_an_event_is_passed_when_what_was_put_before_is_done(cp, cupyx, stream):
    x = cp.asarray(np.arange(1000.0))
    out = cupyx.empty_pinned((1000,), x.dtype)
    (x * 2.0).get(out=out, blocking=False)
    event = cp.cuda.Event(block=True, disable_timing=True)
    event.record(stream)
    event.synchronize()
    assert cp.cuda.runtime.eventQuery(event.ptr) == 0
    assert np.array_equal(out, np.arange(1000.0) * 2.0)


def test_a_stream_that_waits_reads_what_another_has_written(cp, cupyx, stream):
    other = cp.cuda.Stream(non_blocking=True)
    event, done = (cp.cuda.Event(block=True, disable_timing=True) for _ in range(2))
    with other:
        x = cp.exp(cp.asarray(np.ones(4096)))
        event.record(other)
    stream.wait_event(event)
    out = cupyx.empty_pinned((4096,), np.float64)
    (x + 1.0).get(out=out, blocking=False)
    done.record(stream)
    done.synchronize()
    assert np.allclose(out, np.e + 1.0)


def test_who_waits_for_an_event_waits_for_what_it_was_recorded_behind_till_then(cp, cupyx, stream):
    """So an event may be recorded again as soon as all waits for it were issued."""
    other, third = (cp.cuda.Stream(non_blocking=True, priority=one) for one in (0, -1))
    event, done = (cp.cuda.Event(block=True, disable_timing=True) for _ in range(2))
    with other:
        x = cp.exp(cp.asarray(np.ones(4096)))
        event.record(other)
    stream.wait_event(event)
    event.record(third)
    out = cupyx.empty_pinned((4096,), np.float64)
    (x + 1.0).get(out=out, blocking=False)
    done.record(stream)
    done.synchronize()
    assert np.allclose(out, np.e + 1.0)


def test_the_source_of_a_copy_may_be_written_to_at_once(cp, stream):
    source = np.ones(100_000)
    x = cp.asarray(source)
    source[...] = 7.0
    assert np.array_equal(x.get(), np.ones(100_000))


def test_array_copies_and_asarray_does_not(cp, stream):
    x = cp.asarray(np.zeros(3))
    assert cp.asarray(x) is x
    y = cp.array(x)
    y[...] = 1.0
    assert np.array_equal(x.get(), np.zeros(3))


@pytest.mark.parametrize("call", [np.asarray, float, lambda x: x + np.ones(2)])
def test_nothing_is_converted_implicitly(cp, stream, call):
    with pytest.raises((TypeError, ValueError)):
        call(cp.asarray(np.ones(2)))


def test_reductions_give_arrays_of_rank_0(cp, stream):
    total = cp.asarray(np.ones(3)).sum()
    assert isinstance(total, cp.ndarray)
    assert total.shape == ()


def test_indices_out_of_range_wrap(cp, stream):
    x, i = cp.asarray(np.arange(4.0)), cp.asarray(np.array([4, -5]))
    assert x.take(i).get().tolist() == [0.0, 3.0]
    assert x[i].get().tolist() == [0.0, 3.0]


@pytest.mark.parametrize("name", ["maximum", "minimum", "logaddexp"])
def test_only_sums_and_products_are_reduced_by_ufuncs(cp, stream, name):
    x = cp.asarray(np.ones(3))
    with pytest.raises(NotImplementedError):
        getattr(cp, name).reduce(x)
    assert cp.add.reduce(x).get() == 3.0


def test_maxima_take_no_initial_value_and_fail_without_elements(cp, stream):
    with pytest.raises(TypeError):
        cp.asarray(np.ones(3)).max(initial=0.0)
    with pytest.raises(ValueError, match=r"zero-size|identity"):
        cp.asarray(np.ones((0,))).max()


def test_a_stable_sort_keeps_the_order_of_ties(cp, stream):
    keys = np.array([1, 0, 1, 0, 1] * 200)
    order = cp.argsort(cp.asarray(keys), kind="stable")
    assert np.array_equal(order.get(), np.argsort(keys, kind="stable"))


def test_matmul_takes_its_output_by_name(cp, stream):
    x, out = cp.asarray(np.ones((2, 2))), cp.asarray(np.zeros((2, 2)))
    with pytest.raises(TypeError):
        cp.matmul(x, x, out)
    cp.matmul(x, x, out=out)
    assert np.array_equal(out.get(), np.full((2, 2), 2.0))


def test_a_view_shares_memory_and_a_write_to_it_shows(cp, stream):
    x = cp.asarray(np.zeros((2, 3)))
    x.T[1] = 5.0
    assert np.array_equal(x.get()[:, 1], [5.0, 5.0])


def test_a_float_error_is_silent(cp, stream):
    with np.errstate(all="raise"):
        assert np.isinf((cp.asarray(np.ones(1)) / 0.0).get()).all()


# -- captures ---------------------------------------------------------------------------------


def test_nothing_is_computed_before_a_graph_is_launched_and_each_launch_reads_anew(cp, stream):
    x = cp.asarray(np.ones(8))
    y = cp.zeros(8)
    stream.synchronize()
    stream.begin_capture()
    cp.multiply(x, 2.0, out=y)
    graph = stream.end_capture()
    assert y.get().tolist() == [0.0] * 8
    for number in (3.0, 5.0):
        x[...] = number
        graph.launch(stream)
        assert y.get().tolist() == [2.0 * number] * 8


def test_streams_fork_from_a_capture_by_events_and_have_to_join_it(cp, stream):
    side = cp.cuda.Stream(non_blocking=True)
    x, y = cp.asarray(np.ones(8)), cp.zeros(8)
    for joins in (True, False):
        begin, done = (cp.cuda.Event(block=True, disable_timing=True) for _ in range(2))
        stream.synchronize()
        stream.begin_capture()
        begin.record(stream)
        side.wait_event(begin)
        with side:
            cp.add(x, 1.0, out=y)
        done.record(side)
        if joins:
            stream.wait_event(done)
            graph = stream.end_capture()
            graph.launch(stream)
            assert y.get().tolist() == [2.0] * 8
        else:
            with pytest.raises(RuntimeError, match="Unjoined"):
                stream.end_capture()


@pytest.mark.parametrize(
    "refused",
    [
        lambda cp, x: cp.matmul(x, x), lambda cp, x: cp.linalg.inv(x), lambda cp, x: x.get(),
        lambda cp, x: cp.asarray(np.ones(2)), lambda cp, x: float(x[0, 0]),
        lambda cp, x: x[x > 0.0], lambda cp, x: cp.cuda.get_current_stream().synchronize(),
    ],
)  # fmt: skip
def test_what_a_capture_refuses_raises_and_the_stream_is_usable_afterwards(cp, stream, refused):
    x = cp.asarray(np.eye(2))
    stream.synchronize()
    stream.begin_capture()
    with pytest.raises((RuntimeError, NotImplementedError)):
        refused(cp, x)
    with contextlib.suppress(RuntimeError):
        stream.end_capture()
    assert (x + 1.0).get().tolist() == [[2.0, 1.0], [1.0, 2.0]]


def test_a_capture_begins_and_ends_once_and_on_the_same_stream(cp, stream):
    other = cp.cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError):
        stream.end_capture()
    stream.begin_capture()
    with pytest.raises(RuntimeError):
        stream.begin_capture()
    with pytest.raises(RuntimeError):
        other.end_capture()
    with contextlib.suppress(RuntimeError):
        stream.end_capture()


def test_memory_comes_from_the_pool_of_the_thread_that_asks(cp, stream):
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        x = cp.zeros(1024)
    assert cp.cuda.get_current_stream().ptr == stream.ptr
    assert cp.empty_like(x.reshape(32, 32).T).strides == (8, 256)


def test_the_pool_and_the_gpu_tell_their_memory(cp, stream):
    pool = cp.get_default_memory_pool()
    x = cp.zeros(1024)
    free, total = cp.cuda.Device().mem_info
    assert x.nbytes <= pool.used_bytes() <= pool.total_bytes() <= total
    assert 0 < free < total


def test_a_kernel_of_our_own_computes_what_its_text_says(cp, stream):
    lines = (("t0", "multiply", ("a0", "a1")), ("t1", "where", ("a2", "t0", "0")))
    kernel = ElementKernel("f", "ff?", (False, True, False), lines)
    x = np.arange(1000, dtype="float32")
    found = kernel(cp, cp.asarray(x), cp.asarray(np.full(1, 0.3, "f")), cp.asarray(x > 9.0))
    assert np.array_equal(found.get(), np.where(x > 9.0, x * np.float32(0.3), np.float32(0.0)))
    total, places = np.ones(7), np.arange(1000) % 5
    out = cp.asarray(total)
    combine_in_order(cp, "add", out, cp.asarray(places), cp.asarray(x.astype("float64") * 0.1))
    np.add.at(total, places, x.astype("float64") * 0.1)
    assert np.array_equal(out.get(), total)


# -- several GPUs -------------------------------------------------------------------------------


def test_a_pointer_tells_on_which_gpu_its_memory_is(cp, stream):
    x = cp.asarray(np.ones(3))
    pointer = x.__cuda_array_interface__["data"][0]
    assert cp.cuda.runtime.pointerGetAttributes(pointer).device == 0


@pytest.fixture
def other(cp):
    """A stream of another GPU, which is not current."""
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cp.cuda.Device(1):
        return cp.cuda.Stream(non_blocking=True)


def test_a_stream_is_entered_where_its_gpu_is_current(cp, stream, other):
    with pytest.raises(RuntimeError), other:
        pass
    with cp.cuda.Device(1), other:
        assert cp.asarray(np.ones(3)).device.id == 1
    assert cp.asarray(np.ones(3)).device.id == 0


def test_an_event_is_of_one_gpu_and_waited_for_by_streams_of_any(cp, cupyx, stream, other):
    out = cupyx.empty_pinned((4096,), np.float64)
    with cp.cuda.Device(1):
        event = cp.cuda.Event(block=True, disable_timing=True)
        with other:
            x = cp.exp(cp.asarray(np.ones(4096)))
            event.record(other)
    stream.wait_event(event)
    here = x.copy()
    assert here.device.id == 0
    here.get(out=out, blocking=False)
    stream.synchronize()
    assert np.allclose(out, np.e)
    with pytest.raises(RuntimeError):
        event.record(stream)


def test_only_what_lies_in_one_piece_is_copied_to_another_gpu(cp, stream, other):
    with cp.cuda.Device(1), other:
        turned = cp.asarray(np.ones((3, 2))).T[1:]
        whole = cp.ascontiguousarray(turned)
        other.synchronize()
    with pytest.raises(NotImplementedError):
        turned.copy()
    assert whole.copy().get().shape == (1, 3)


# -- linear algebra -----------------------------------------------------------------------------


def test_a_singular_matrix_is_no_error_unless_it_is_asked_for(cp, cupyx, stream):
    x = cp.asarray(np.zeros((2, 2)))
    assert not np.isfinite(cp.linalg.inv(x).get()).all()
    with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        cp.linalg.inv(x)
