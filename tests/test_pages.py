"""Every block of Python in the pages of the documentation runs, page by page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if "```python" in page.read_text() and page.name not in ("design.md", "performance.md")
)
CONTENTS = re.compile(r"^:::\{toctree\}\n(.*?)^:::", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[\w-]+)?\)")


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert blocks
    scope = {"__name__": "page"}
    for block in blocks:
        lines_before = text[: block.start(1)].count("\n")
        code = "\n" * lines_before + block[1]  # so that an error names the line of the page
        exec(compile(code, page, "exec"), scope)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=name)
def test_the_links_of_a_page_lead_to_files(page):
    dead = [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]
    assert not dead


def test_every_page_is_in_the_contents():
    pages = set(ROOT.glob("docs/**/*.md")) - {ROOT / "docs/index.md", ROOT / "docs/style.md"}
    listed = {
        (page.parent / f"{entry}.md").resolve()
        for page in ROOT.glob("docs/**/*.md")
        for contents in CONTENTS.findall(page.read_text())
        for entry in re.findall(r"^[\w./]+$", contents, re.MULTILINE)
    }
    assert listed == pages
