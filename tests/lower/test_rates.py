"""Measured rates are stored for one machine and one NumPy, and ignored where they are bad."""

import json
import os
import sys

import numpy as np
import pytest

from actorgraph.lower import rates as module
from actorgraph.lower.rates import Rates, path, store, stored

MEASURED = Rates(
    call_us=0.3,
    additions_per_us=9e3,
    transcendental_flops_per_us=7e3,
    bytes_per_us=2e4,
    wake_us=80.0,
    products={"numpy": [(1e5, 2e4), (1e8, 9e4)], "mkl": [(1e8, 1e5)]},
)


@pytest.fixture(autouse=True)
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_without_a_file_the_rates_are_those_of_a_middling_core():
    found, why = stored()
    assert found == Rates()
    assert "`actorgraph calibrate` measures this one" in why


def test_what_is_stored_is_found_again():
    where = store(MEASURED, "2026-01-02")
    found, why = stored()
    assert found == MEASURED
    assert why == "measured on this machine on 2026-01-02"
    assert os.listdir(os.path.dirname(where)) == [os.path.basename(where)]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:40], "JSONDecodeError"),
        (lambda text: "[]", "TypeError"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "of format 9"),
        (lambda text: text.replace(np.__version__, "1.0"), "for NumPy 1.0"),
        (lambda text: text.replace("9000.0", "-1"), "-1 is no rate"),
        (lambda text: text.replace("9000.0", "NaN"), "nan is no rate"),
        (lambda text: text.replace("9000.0", '"fast"'), "'fast' is no rate"),
        (lambda text: text.replace("call_us", "cal_us"), "cal_us"),
        (lambda text: text.replace('"mkl": [', '"mkl": [], "other": ['), "no products"),
    ],
)
def test_a_damaged_file_is_passed_over_with_a_note(damage, why):
    where = store(MEASURED, "2026-01-02")
    with open(where) as file:
        text = damage(file.read())
    with open(where, "w") as file:
        file.write(text)
    found, note = stored()
    assert found == Rates()
    assert why in note
    assert "run `actorgraph calibrate` again" in note


def test_a_file_that_cannot_be_read_is_passed_over():
    os.makedirs(path())
    assert stored()[0] == Rates()


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/actorgraph"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/actorgraph"),
        ("linux", {}, "/home/me/.cache/actorgraph"),
        ("darwin", {}, "/home/me/Library/Caches/actorgraph"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/actorgraph"),
        ("win32", {}, "/home/me/AppData/Local/actorgraph"),
    ],
)
def test_the_file_lies_where_the_platform_keeps_caches(platform, variables, folder, monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert os.path.dirname(path()) == folder
    assert np.__version__ in os.path.basename(path())


def test_the_rate_of_a_product_is_read_between_measured_sizes():
    table = Rates(products={"numpy": [(1e4, 10.0), (1e6, 1000.0)]})
    assert table.product_us(1e4, "numpy") == pytest.approx(1e3)
    assert table.product_us(1e2, "numpy") == pytest.approx(1e1)  # the rate of the smallest
    assert table.product_us(1e8, "numpy") == pytest.approx(1e5)  # and of the largest
    assert 1e5 / 1000 < table.product_us(1e5, "numpy") < 1e5 / 10
    assert table.product_us(1e4, "mkl") == pytest.approx(1e3)  # not measured: as NumPy


def test_rates_are_read_once_in_a_process():
    module.rates.cache_clear()
    first = module.rates()
    store(MEASURED, "2026-01-02")
    assert module.rates() is first
    module.rates.cache_clear()
    assert module.rates() == MEASURED
    module.rates.cache_clear()


def test_the_file_is_json():
    with open(store(MEASURED, "2026-01-02")) as file:
        assert json.load(file)["rates"]["wake_us"] == 80.0
