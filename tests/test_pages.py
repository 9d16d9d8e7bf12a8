"""Every block of Python in the pages of the documentation runs, page by page.

Those of errors.md are run by tests/test_explanations.py, section by section.
"""

import ast
import linecache
import re
from pathlib import Path

import pytest

from tests._each import each
from tests.test_architecture import FILES, classes, nodes, part

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "```python" in page.read_text() and page.name not in ("design.md", "errors.md")
)
CONTENTS = re.compile(r"^:::\{toctree\}\n(.*?)^:::", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)")
FENCE = re.compile(r"^(```+|:::+).*?^\1", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINKED = sorted({*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("docs/**/*.md")})


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert blocks
    scope = {"__name__": "page"}
    # Errors name the line of the page, and the source of a function is what stands there.
    for block in blocks:
        code = "\n" * text[: block.start(1)].count("\n") + block[1]
        monkeypatch.setitem(linecache.cache, str(page), _source(code))
        exec(compile(code, page, "exec"), scope)
    scope.clear()  # declared ops stay, and with them what their functions refer to


def anchors(page):
    """The anchors that Sphinx and GitHub give to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page):
    """The links of a page, and their anchors, that lead nowhere."""
    for to, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        file = page.parent / to if to else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield f"{to}#{anchor}" if anchor else to


@each("page", LINKED)
def test_no_link_of_a_page_is_dead(page):
    assert list(dead_links(page)) == []


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A heading: `code`\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[1](there.md) [2](there.md#a-heading-code) [3](https://no.where) [4](gone.md)"
        " [5](there.md#no-heading) [6](#nor-here)\n# And here\n[7](#and-here)"
    )
    assert list(dead_links(page)) == ["gone.md", "there.md#no-heading", "#nor-here"]


def _source(code):
    """Return what `linecache` holds of a text."""
    return len(code), None, code.splitlines(True), "page"


def test_every_page_is_in_the_contents():
    pages = set(ROOT.glob("docs/**/*.md")) - {ROOT / "docs/index.md", ROOT / "docs/style.md"}
    listed = {
        (page.parent / f"{entry}.md").resolve()
        for page in ROOT.glob("docs/**/*.md")
        for contents in CONTENTS.findall(page.read_text())
        for entry in re.findall(r"^[\w./]+$", contents, re.MULTILINE)
    }
    assert listed == pages


HOUSE_WORDS = set("aide board crew flight form lender rival ring tail told until wall".split())
"""Words that stood for things which the field has a word for: slot, pool, key, free list, trial."""
NO_CLASSES = set("cotangent cut residual seed symbol tangent worker".split())
"""Words of the glossary for what is no object of a class of its own."""


def glossary():
    return re.findall(r"^([a-z]+)\n  ", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)


def words_of(name):
    """Return the words of the name of a class: those of `LaneRun` are lane and run."""
    return {word.lower() for word in re.findall(r"[A-Z]*[a-z]+|[A-Z]+", name)}


def test_the_glossary_has_few_words_in_order():
    assert glossary() == sorted(glossary())
    assert 20 <= len(glossary()) <= 25


def test_classes_are_named_by_words_of_the_glossary_and_none_by_a_word_of_the_house():
    used = {name: words_of(name) for name in classes()}
    in_code = {word.removesuffix("s") for words in used.values() for word in words}
    assert set(glossary()) - in_code == NO_CLASSES
    assert HOUSE_WORDS.isdisjoint(glossary())
    assert [name for name, words in used.items() if words & HOUSE_WORDS] == ["TensorBoard"]


def functions():
    """Return the names of functions and methods, but for laws, which are sentences, and serving."""
    return {
        node.name
        for module in FILES
        if part(module) not in ("serving", "testing")
        for node in nodes(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def test_functions_are_named_by_no_word_of_the_house():
    named = {name for name in functions() if HOUSE_WORDS & {*name.split("_")}}
    assert named == set()


def test_classes_that_the_design_and_the_glossary_name_are_there():
    for page in ("docs/design.md", "docs/glossary.md"):
        named = re.findall(r"`([A-Z][a-z]\w+)[`.(]", (ROOT / page).read_text())
        assert set(named) <= classes().keys() | {"Cut"}
