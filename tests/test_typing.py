"""The program that type checkers are given is one that runs; `mypy` and CI check its types."""

from tests.typing import user_program


def test_the_typed_program_of_a_user_runs(capsys):
    user_program.main()
    assert capsys.readouterr().out.endswith("(8, 16)\n")
