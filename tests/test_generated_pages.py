"""The generated pages say what the registry and the dispatch do."""

import warnings

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.op import REGISTRY
from actorgraph.ops import _numpy
from docs import generate, performance
from tests._each import each
from tests._evaluate import evaluate


@each("page", generate.PAGES)
def test_page_is_what_its_generator_writes(page):
    written = (generate.DOCS / page).read_text()
    fresh = generate.PAGES[page]()
    if written != fresh:
        changed = sorted(set(written.splitlines()) ^ set(fresh.splitlines()))
        pytest.fail(
            f"docs/{page} is stale; run: python docs/generate.py\n" + "\n".join(changed[:20])
        )


@pytest.mark.parametrize("page", performance.PAGES)
def test_the_tables_of_what_it_costs_are_those_of_the_committed_results(page):
    text = (performance.DOCS / page).read_text()
    assert performance.page(text) == text, "run: python docs/performance.py"


def test_every_benchmark_has_a_place_on_the_page_of_what_it_costs():
    text = (performance.DOCS / "performance.md").read_text()
    folder = performance.RESULTS.parent
    programs = {path.stem for path in folder.glob("[a-z]*.py")}
    assert {found[2] for found in performance.BLOCK.finditer(text)} == programs
    assert {path.stem for path in performance.RESULTS.glob("*.json")} <= programs


def test_a_missed_target_stands_on_the_page():
    head = ["case", "system", "against", "ratio", "target", ""]
    rows = [head, ["small", "ours", "theirs", "1.2", "<= 1x", "MISSED"], ["large", *"abcd", "met"]]
    assert performance._targets(rows).splitlines() == [
        "- 1 of 2 targets are met.",
        "- Missed: small, ours takes 1.2x theirs; wanted <= 1x.",
    ]


def as_list(result):
    if isinstance(result, (list, tuple)):
        return [one for part in result for one in as_list(part)]
    return [result]


LISTED = sorted({*generate.AUTOGRAD, *_numpy.names()})


def test_every_listed_function_has_a_sample_call():
    assert set(LISTED) <= set(generate.CALLS)


def has_numpy(name):
    found = np
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


@each("name", filter(has_numpy, LISTED))
def test_a_listed_function_means_on_nodes_what_it_means_in_numpy(name):
    graph = ag.Graph()
    values = generate.arrays()
    nodes = [graph.input(name, value.shape, value.dtype) for name, value in zip("xm", values)]
    got = as_list(generate.CALLS[name](*nodes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what a later NumPy leaves out
        wanted = as_list(generate.CALLS[name](*values))
    assert len(got) == len(wanted)
    feeds = dict(zip(nodes, values, strict=True))
    for node, value, want in zip(got, evaluate(got, feeds), wanted, strict=True):
        assert node.ndim == np.ndim(want)
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
def test_the_list_is_what_autograd_differentiates():
    pytest.importorskip("autograd.numpy.linalg")
    import autograd.numpy.fft  # noqa: F401 - registers its derivatives
    from autograd.core import primitive_vjps

    functions = {getattr(primitive, "fun", primitive) for primitive in primitive_vjps}
    modules = {"numpy": "", "numpy.linalg": "linalg.", "numpy.fft": "fft."}
    found = {
        modules[function.__module__] + function.__name__
        for function in functions
        if getattr(function, "__module__", None) in modules
    }
    # A ufunc names no module.
    found |= {f.__name__ for f in functions if isinstance(f, np.ufunc) and hasattr(np, f.__name__)
              and getattr(np, f.__name__) is f}  # fmt: skip
    composites = {"append", "array", "column_stack", "concatenate", "hstack", "select", "stack",
                  "take", "vstack"}  # fmt: skip
    assert found | composites == set(generate.AUTOGRAD)


def test_the_page_of_ops_lists_what_users_call_once_with_its_signature():
    text = generate.ops_page()
    for name in set(ag.ops.__all__) - {"Sample", "Together"}:
        assert text.count(f"\n| `{name}(") == 1
    assert "| `sum(x, axis=None, keepdims=False)` | `n[*s] -> n[*out]` | all, forward |" in text


def test_the_page_of_internal_ops_lists_those_that_users_do_not_call():
    text, public = generate.internal_page(), set(ag.ops.__all__)
    for op in REGISTRY.values():
        if not op.checked:
            assert text.count(f"\n| `{op.name}` | ") == (op.name not in public)


def test_every_function_has_one_subject():
    listed = [name for names in generate.subjects().values() for name in names]
    assert sorted([*listed, "Sample", "Together"]) == sorted(ag.ops.__all__)


def test_what_is_compared_with_pytorch_is_a_recorded_list_of_ops_and_functions():
    compared = generate.compared_with_pytorch()
    assert compared <= {*REGISTRY, *ag.ops.__all__}
    for name in ("exp", "gather", "scatter_add", "sort", "logsumexp", "pad", "conv3d", "huber"):
        assert name in compared
    for name in ("size_along", "bernoulli", "Sample"):
        assert name not in compared


def test_more_forms_of_numpy_functions_mean_the_same_on_nodes():
    x, m = generate.arrays()
    graph = ag.Graph()
    node, square = graph.input("x", (2, 3), "float64"), graph.input("m", (3, 3), "float64")
    calls = [
        lambda a, b: np.rot90(a, 2), lambda a, b: np.rot90(a, -1), lambda a, b: np.rot90(a, 4),
        lambda a, b: np.rollaxis(a[None], 2, 1), lambda a, b: np.rollaxis(a[None], 0, -1),
        lambda a, b: np.diff(a, 2, axis=1), lambda a, b: np.gradient(b, 0.5, axis=0),
        lambda a, b: np.gradient(b, 0.5, 2.0)[1], lambda a, b: np.append(a, b, axis=0),
        lambda a, b: np.hstack([a[0], b[0]]), lambda a, b: np.dstack([a, a])[..., 1],
        lambda a, b: np.column_stack([a[0], b]), lambda a, b: np.inner(a, b),
        lambda a, b: np.array_split(b, 2)[0], lambda a, b: np.array_split(b, [1])[1],
        lambda a, b: np.hsplit(a[0], 3)[2], lambda a, b: np.vstack([a[0], b]),
        lambda a, b: np.nan_to_num(a / np.where(a > 0.5, a, 0.0), posinf=7.0),
        lambda a, b: np.fft.fftshift(a, axes=1), lambda a, b: np.fft.rfftn(a[0]),
        lambda a, b: np.linalg.norm(a, 1, axis=1), lambda a, b: np.linalg.norm(a, "fro"),
        lambda a, b: np.linalg.norm(a[0], np.inf), lambda a, b: np.ptp(b, axis=1, keepdims=True),
        lambda a, b: np.atleast_3d(a[0]), lambda a, b: np.unique(a, return_counts=True)[1],
    ]  # fmt: skip
    for number, call in enumerate(calls):
        with np.errstate(divide="ignore", invalid="ignore"):
            (got,) = evaluate([call(node, square)], {node: x, square: m})
            wanted = call(x, m)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, err_msg=str(number))
