"""`actorgraph calibrate` measures in seconds, stores what the cost model reads, and advises."""

import json
import os

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import _calibrate, cli
from actorgraph.devices import blas, fastest
from actorgraph.errors import GraphTypeError
from actorgraph.lower import rates
from actorgraph.lower.rates import Rates, stored


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_calibrate, "_SECONDS", 0.005)
    yield
    rates.rates.cache_clear()


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
    ("asked", "numpy", "mkl", "advice"),
    [
        ("", 2.0, 1.0, ["numpy multiplies from now on, at 2.00 times the speed of mkl"]),
        ("mkl", 1.0, 1.5, ["mkl multiplies from now on, at 1.50 times the speed of numpy"]),
        (
            "mkl", 1.0, 1.0,
            [
                "numpy multiplies from now on, at 1.00 times the speed of mkl",
                "unset ACTORGRAPH_MATMUL, which asks for mkl",
            ],
        ),
    ],
)  # fmt: skip
def test_the_faster_provider_multiplies_from_then_on(
    asked, numpy, mkl, advice, monkeypatch, tmp_path
):
    library = tmp_path / "libmkl_rt.so"
    library.touch()
    monkeypatch.setattr(blas, "library", lambda: str(library))
    monkeypatch.setenv(blas.VARIABLE, asked)
    assert _calibrate._advice(measured(numpy, mkl)) == advice
    kept = fastest.choice(None, None, str(library))  # measures nothing any more
    assert advice[0].startswith("mkl" if kept.other else "numpy")


def test_without_mkl_there_is_nothing_to_choose():
    assert _calibrate._advice(Rates()) == []


def content(**changes):
    found = {
        "format": 1, "numpy": np.__version__, "date": "2030-01-01",
        "rates": {**Rates()._asdict(), "products": {"numpy": [[1e6, 1e4]]}},
    }  # fmt: skip
    return json.dumps({**found, **changes})


def rated(**changes):
    return content(rates={**Rates()._asdict(), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "3", "[]", "{}", "[" * 100_000, "\xff", "NaN", '"text"', "9" * 5000,
        content(date=None), content().replace('"date"', '"day"'), content(rates=None),
        content(rates=[]), content(format=10**400), content(numpy=[]),
        rated(call_us=10**400), rated(call_us=float("nan")), rated(call_us="1"),
        rated(call_us=True),
        rated(call_us=1e-320), rated(wake_us=-1), rated(wake_us=1e308), rated(more=1),
        rated(products=[]), rated(products={"numpy": [[1]]}),
        rated(products={"numpy": [[10**400, 1]]}), rated(products={"numpy": []}),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_passed_over(text, capsys):
    where = rates.path()
    os.makedirs(os.path.dirname(where))
    with open(where, "w", encoding="latin-1") as file:
        file.write(text)
    rates.rates.cache_clear()
    x = ag.Graph().input("x", ("n", 3), "float64")
    with ag.ActorMachine([x @ np.ones((3, 2))]) as machine:
        machine.run_sync({"x": np.ones((2, 3))})
    found, why = stored()
    assert found == Rates()
    assert "is ignored" in why
    assert cli.main(["doctor"]) == 0
    assert "is ignored" in capsys.readouterr().out


def test_a_file_of_this_machine_is_used():
    where = rates.path()
    os.makedirs(os.path.dirname(where))
    with open(where, "w", encoding="utf-8") as file:
        file.write(content())
    assert stored()[1] == "measured on this machine on 2030-01-01"


def test_a_key_that_is_missing_elsewhere_is_not_taken_for_a_dim():
    def cost(shapes, result, attrs):
        return {}["flops"]

    op = ag.ops.define(
        "calibrate_cost", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x, cost=cost
    )
    x = ag.Graph().input("x", ("n",), "float64")
    text = "cost of op 'calibrate_cost' raised KeyError"
    with ag.ActorMachine([op(x)]) as machine, pytest.raises(GraphTypeError, match=text):
        machine.run_sync({"x": np.ones(2)})
