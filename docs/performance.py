"""Writes the tables of `PAGES` from benchmarks/results: `python docs/performance.py`.

The text between the tables is written by hand, and stays.  `tests/test_generated_pages.py` fails
where a table is not what this writes.
"""

import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
MISSED = "MISSED"
PAGES = ("performance.md", "devices.md")


def page(text):
    """Return the page with the tables between its marks written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{_figures(found[2])}\n{found[3]}", text)


def _figures(name):
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return f"No figures are committed yet; `python -m benchmarks.{name}` measures them.\n"
    run = json.loads(path.read_text())
    tables = [_table(one) for one in run["told"] if "rows" in one]
    sentences = [one["text"] for one in run["told"] if "text" in one]
    told = [_listed(sentences)] if sentences else []
    return "\n".join([*tables, *told, f"*{_conditions(run)}*\n"])


def _table(table):
    title, rows = table["title"], table["rows"]
    if title == "targets":
        return _targets(rows)
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    right = [":--" if column < table["words"] else "--:" for column in range(len(head))]
    lines = [f"| {' | '.join(row)} |" for row in (head, right, *rest)]
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines, ""])


def _targets(rows):
    """Say how many targets are met, and list the others."""
    missed = [row for row in rows[1:] if row[-1] == MISSED]
    told = f"{len(rows) - 1 - len(missed)} of {len(rows) - 1} targets are met."
    return _listed([told, *(
        f"Missed: {case}, {system} takes {ratio}x {against}; wanted {target}."
        for case, system, against, ratio, target, _ in missed
    )])  # fmt: skip


def _listed(sentences):
    return "".join(f"- {sentence[0].upper()}{sentence[1:]}\n" for sentence in sentences)


def _conditions(run):
    packages = [
        f"{name} {version}"
        for name, version in run["versions"].items()
        if version != "not installed"
    ]
    facts = [run["date"][:10], f"{run['cpu']}, {run['cores']} cores", run["blas"], *packages]
    if run.get("load") is not None:
        facts.insert(2, f"load {run['load']:.1f} before")
    if run["quick"]:
        facts.append("a short run")
    if "source" in run:
        facts.append(run["source"])
    return "; ".join(facts) + "."


if __name__ == "__main__":
    for name in PAGES:
        written = DOCS / name
        written.write_text(page(written.read_text()))
        sys.stdout.write(f"wrote {name}\n")
