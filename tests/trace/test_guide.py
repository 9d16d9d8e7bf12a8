"""What `docs/tracing.md` tells to type works, from top to bottom."""

import re
import shlex
from pathlib import Path

from actorgraph import cli

GUIDE = Path(__file__).parents[2] / "docs/tracing.md"


def test_everything_in_the_guide_works_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    for language, text in blocks:
        if language == "sh":
            program, *arguments = shlex.split(text)
            assert program == "actorgraph"
            assert cli.main(arguments) == 0
        elif text.startswith("# model.py\n"):
            Path("model.py").write_text(text)
        else:
            exec(compile(text, str(GUIDE), "exec"), names)
    written = {path.name for path in tmp_path.iterdir()}
    pages = {"mlp.html", "build.html", "pipeline.html"}
    assert written - {"__pycache__"} == {"mlp.json", "build.json", "model.py"} | pages
    assert "critical path of run" in capsys.readouterr().out
    assert names["view"].ended == 1
    assert names["sent"] > 0
    assert {part.lane for part in names["t"].slices} >= {"stage 0", "stage 1"}
