"""`actorgraph calibrate` measures in seconds, stores what the cost model reads, and advises."""

import json

import pytest

from actorgraph import _calibrate, cli
from actorgraph.devices import blas
from actorgraph.lower.rates import Rates, stored


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_calibrate, "_SECONDS", 0.005)


def test_what_is_measured_is_stored_and_shown_line_by_line(capsys):
    assert cli.main(["calibrate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for begin in ("call ", "additions ", "tanh ", "memory ", "another thread ", "matmul by numpy "):
        assert any(line.startswith(begin) for line in lines)
    found, why = stored()
    assert found != Rates()
    assert why.startswith("measured on this machine on ")
    assert lines[-1].startswith("stored in ")


def test_with_json_it_prints_one_object_and_nothing_else(capsys):
    assert cli.main(["calibrate", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert set(outcome) == {"rates", "file", "advice"}
    assert Rates(**outcome["rates"]).call_us > 0


def measured(numpy, mkl):
    return Rates(products={"numpy": [(1e6, 9e9), (1e8, numpy)], "mkl": [(1e8, mkl)]})


@pytest.mark.parametrize(
    ("chosen", "numpy", "mkl", "advice"),
    [
        ("mkl", 2.0, 1.0, "set ACTORGRAPH_MATMUL=numpy: 2.00 times as fast as mkl here"),
        ("mkl", 1.0, 1.5, "mkl multiplies, at 1.50 times the speed of numpy: leave it so"),
        ("numpy", 1.0, 1.5, "set ACTORGRAPH_MATMUL=mkl: 1.50 times as fast as numpy here"),
        ("numpy", 1.0, 1.0, "numpy multiplies, at 1.00 times the speed of mkl: leave it so"),
    ],
)
def test_it_recommends_the_faster_provider_and_switches_none(
    chosen, numpy, mkl, advice, monkeypatch
):
    provider = blas.NUMPY._replace(name=chosen)
    monkeypatch.setattr(blas, "provider", lambda: provider)
    assert _calibrate._advice(measured(numpy, mkl)) == [advice]


def test_without_mkl_there_is_nothing_to_recommend():
    assert _calibrate._advice(Rates()) == []
