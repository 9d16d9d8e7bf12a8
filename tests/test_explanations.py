"""Every error has a code, every code a section, and what a section shows is so."""

import re
from pathlib import Path

import pytest

import actorgraph as ag
from actorgraph import cli

PACKAGE = Path(ag.__file__).parent
TEXT = (PACKAGE / "explanations.md").read_text()
_, *PARTS = TEXT.split("\n## ")
SECTIONS = {part.partition("\n")[0]: part for part in PARTS}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
IN_SOURCE = re.compile(r'\breference(?:: str)? ?= ?"(\w+)"')


def subclasses(cls):
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def test_every_code_in_the_source_has_a_section_and_every_section_a_code():
    used = {code for path in PACKAGE.rglob("*.py") for code in IN_SOURCE.findall(path.read_text())}
    assert used == set(SECTIONS)
    assert all(re.fullmatch(r"AG1\d\d", code) for code in used)


def test_every_error_that_is_exported_has_a_section():
    errors = [one for one in subclasses(ag.GraphError) if one.__module__.startswith("actorgraph")]
    assert len(errors) > 8
    assert {one.reference for one in errors} <= set(SECTIONS)


def run_block(block, scope):
    lines_before = TEXT[: block.start(1)].count("\n")
    exec(compile("\n" * lines_before + block[1], PACKAGE / "explanations.md", "exec"), scope)


@pytest.mark.parametrize("code", SECTIONS)
def test_the_program_of_a_section_raises_its_error_and_the_repair_does_not(
    code, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    begin = TEXT.index(f"\n## {code}\n")
    shared, *blocks = BLOCK.finditer(TEXT)
    program, *repair = [one for one in blocks if begin < one.start() < begin + len(SECTIONS[code])]
    scope = {"__name__": "page"}
    run_block(shared, scope)
    run_block(program, scope)
    assert capsys.readouterr().out.startswith(f"{code} ")
    for block in repair:
        run_block(block, scope)
    assert capsys.readouterr().out == ""


def test_the_end_of_a_traceback_names_the_code():
    x = ag.Graph().input("x", (2, 3))
    with pytest.raises(ag.ShapeError) as raised:
        x @ x
    assert raised.value.__notes__ == ["more: actorgraph explain AG102"]


def test_the_command_prints_a_section_or_says_which_there_are(capsys):
    assert cli.main(["explain", "ag101"]) == 0
    assert capsys.readouterr().out.strip() == SECTIONS["AG101"].strip()
    assert cli.main(["explain", "all"]) == 0
    assert capsys.readouterr().out.strip() == TEXT.strip()
    assert cli.main(["explain", "AG1"]) == 1
    assert "known are AG100, AG101" in capsys.readouterr().err
