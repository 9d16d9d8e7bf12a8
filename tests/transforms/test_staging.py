"""A function is traced once for arguments of a kind, and its traces are forgotten with it."""

import asyncio
import gc
import threading

import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests.transforms._functions import X, close, scalar


def test_a_function_is_traced_once_per_kind_of_arguments():
    calls = []

    def f(x, power=2):
        calls.append(power)
        return (x**power).sum()

    df = ag.grad(f)
    for _ in range(3):
        df(X)
        df(X + 1)
    assert calls == [2]
    df(X[:2])
    df(X.astype("float32"))
    df(X, 3)
    df(X, power=3)
    assert calls == [2, 2, 2, 3, 3]
    df(X[:2])
    assert len(calls) == 5


def test_values_of_static_arguments_have_traces_of_their_own():
    df = ag.grad(lambda x, n: x * (2.5 if n is True else n))
    assert df(1.0, 1) == 1
    assert df(1.0, True) == 2.5
    assert df(1.0, 0) == 0


def test_a_name_from_outside_that_is_bound_anew_is_seen():
    scale = 2.0

    def f(x):
        return x * scale

    df = ag.grad(f)
    assert df(1.0) == 2
    scale = 3.0
    assert df(1.0) == 3
    assert ag.grad(df)(1.0) == 0


def test_old_traces_are_forgotten(monkeypatch):
    from actorgraph.transforms import staging

    monkeypatch.setattr(staging, "_TRACES_KEPT", 2)
    calls = []

    def f(x, n):
        calls.append(n)
        return x * n

    df = ag.grad(f)
    for n in (1, 2, 1, 3, 1, 2):
        df(1.0, n)
    assert calls == [1, 2, 3, 2]


def test_a_dropped_function_leaves_nothing_behind():
    import weakref

    def f(x):
        return x * x

    df = ag.grad(f)
    df(1.0)
    seen = weakref.ref(f)
    del f, df
    gc.collect()
    assert seen() is None


def test_threads_share_traces():
    df = ag.grad(scalar)
    found = []

    def work():
        found.append([df(X * k) for k in range(20)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(own) for own in found] == [20] * 4
    for own in found:
        close(own[1], ag.grad(scalar)(X))


def test_inside_an_event_loop_the_error_says_what_to_do():
    async def main():
        ag.grad(scalar)(X)

    with pytest.raises(GraphError, match=r"block the running event loop.*anyio\.to_thread"):
        asyncio.run(main())
