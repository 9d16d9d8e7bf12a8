"""`benchmarks.gpu` on the stand-in, so that borrowed time on a GPU is not its first trial."""

import json

import pytest

from benchmarks import _gpu_stages, gpu

ALONE = {"contract", "machines"}  # tests of their own, `test_cupy_contract` and `test_conformance`


@pytest.mark.parametrize("name", sorted({*gpu.stages()} - ALONE))
def test_a_stage_tells_facts_and_none_has_failed(name, world):
    told = {}
    gpu.stages()[name](told.__setitem__, True)
    assert told
    assert not [fact for fact, value in told.items() if gpu._is_failure(value)]


def test_every_stage_that_is_asked_for_exists_and_the_first_ones_take_under_nine_minutes():
    asked = [name for stages in gpu.STAGES.values() for name, _ in stages]
    assert {*asked} == {*gpu.stages()}
    assert sum(limit_s for _, limit_s in gpu.STAGES["first"]) < 540
    assert sum(limit_s for _, limit_s in gpu.STAGES["bench"]) <= 600


def test_facts_are_written_after_each_stage_and_a_stage_that_is_stopped_loses_none(
    monkeypatch, tmp_path, capsys
):
    stages = {"first": (("versions", 50.0), ("costs", 0.01)), "bench": (), "sanitize": ()}
    monkeypatch.setattr(gpu, "STAGES", stages)
    assert gpu.main(["--stand-in", "--json", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())["stages"]
    assert found["versions"]["status"] == "ok"
    assert found["versions"]["facts"]["gpus"] == 1
    assert found["costs"]["status"] == "stopped at its limit of 0.01 s"
    assert "costs" in capsys.readouterr().out


def test_a_fact_that_has_failed_is_told_and_fails_the_script(monkeypatch):
    told = {}
    _gpu_stages._try(told.__setitem__, "this", lambda: 1 / 0)
    assert gpu._is_failure(told["this"])
    assert "ZeroDivisionError" in told["this"]["failed"]
