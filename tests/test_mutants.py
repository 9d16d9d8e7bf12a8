"""The tool that changes modules and looks whether their tests notice; see `tests.mutants`."""

import pytest

from tests import mutants

MODULE = '''
_TEXT = """
define i64 @f(i64 %x) {{
  %little = icmp slt i64 %x, 1
  br i1 %little, label %one, label %other.one
  store i64 0, ptr %place
"""
little, store = 1 < 2, None
'''


def test_each_instruction_of_llvm_text_is_changed_and_python_is_not():
    before = MODULE.splitlines()
    found = []
    for (line, _), [(_, made)] in mutants.in_machine_text(MODULE).items():
        after = made().splitlines()
        assert [
            at for at, pair in enumerate(zip(before, after, strict=True), 1) if len({*pair}) > 1
        ] == [line]
        found.append(after[line - 1].strip())
    assert sorted(found) == sorted(
        [
            "%little = icmp sle i64 %x, 1",
            "br i1 %little, label %other.one, label %one",
            "store i64 1, ptr %place",
            "",
        ]
    )


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("def test(): pass", True),
        ("def test(): assert False", False),
        ("import ctypes, threading\ndef test(): ctypes.CDLL(None).pause()", None),
    ],
)
def test_tests_that_do_not_end_are_told_from_those_that_fail(tmp_path, test, found):
    (tmp_path / "test_it.py").write_text(test)
    assert mutants.outcome(tmp_path, ["test_it.py"], 30 if found is not None else 1) is found
