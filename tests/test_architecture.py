"""The sentences of docs/design.md about structure, as tests: who imports whom, what is where.

    errors <- keywords, options <- dims, runs <- types <- op, parameters <- node
           <- legality, operands <- graph <- ops <- autodiff, rewrite <- memory <- lower
           <- control, jit, solvers
           <- deadlines <- channels, node_actor, scheduler <- machines
           <- transforms, trace, nn, pipeline, source, testing, data, io <- serving, train
           <- _demo <- cli <- __main__

Beside the line: instrument (below scheduler), drawing (below graph), devices (below lower),
schedules (below _demo: they know no graph).
"""

import ast
import doctest
import importlib
import inspect
import io
import pydoc
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import op
from actorgraph.op import REGISTRY
from tests import _trees
from tests._child import printed_by
from tests._each import each
from tests._trees import tree

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "actorgraph"

LAYERS = (
    ("errors", "_version"),
    ("options", "keywords", "notebook", "tables", "warned"),
    ("dims", "runs", "store"),
    (
        "types",
        "drawing",
        "dual",
        "instrument",
        "schedules",
        "_progress",
        "_target",
        "flag",
        "gates",
        "scratch",
        "tiles",
    ),
    ("devices",),
    ("op", "parameters"),
    ("node",),
    ("legality",),
    ("operands",),
    ("graph",),
    ("ops",),
    ("autodiff", "rewrite"),
    ("memory",),
    ("lower",),
    ("control", "jit", "solvers"),
    ("deadlines",),
    ("channels", "node_actor", "scheduler"),
    ("machines",),
    ("transforms", "trace", "nn", "pipeline", "source", "testing", "data", "io"),
    ("serving", "train"),
    ("_calibrate", "_demo", "_doctor"),
    ("cli",),
    ("__main__",),
    ("",),  # the root, which re-exports
)
"""A module imports from its own part of the package and from layers above its own line only."""

LONGEST_FILE, LONGEST_FUNCTION, LARGEST_CIRCLE = 700, 60, 4
MOST_ATTRIBUTES = 30
CALLS_OF_A_RUN, FILES_OF_A_RUN = 22, 10  # a call and the file of tables in it
"""What a warm ``run_sync`` of a small graph passes; 41 and 13 before plans were records."""
THREADS = ("data/_processes.py", "deadlines.py", "scheduler.py", "devices/")
IN_GRAPHS = "actorgraph.solvers._graph"
"""The steps of solvers as nodes."""
STARTS_THREADS = {"Thread", "Timer", "ThreadPoolExecutor", "start_new_thread", "to_thread"}
HEAVY = {
    "IPython",
    "asyncio",
    "cupy",
    "jax",
    "numpy.typing",
    "rich",
    "threadpoolctl",
    "torch",
    "trio",
}
IMPORT_MS = 250
"""Far above what it takes (28 to 40 ms), for machines under load."""

FILES = {
    ".".join(("actorgraph", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
PUBLIC = [name for name in FILES if not any(part[0] == "_" for part in name.split("."))]


def of_all(modules):
    """Return a decorator for a test of one module: it is made of all of them, and names each."""

    def decorator(test):
        def test_of_all():
            broken = []
            for module in modules:
                try:
                    test(module)
                except AssertionError as error:
                    broken.append(f"{module}: {error}")
            assert not broken, "\n".join(broken)

        test_of_all.__doc__ = test.__doc__
        return test_of_all

    return decorator


every_module, every_public_module = of_all(FILES), of_all(PUBLIC)


def nodes(module):
    return _trees.nodes(FILES[module])


def relative(module):
    return FILES[module].relative_to(PACKAGE).as_posix()


def is_type_checking(node):
    if not isinstance(node, ast.If):
        return False
    return "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))


def at_run_time(module, inside_functions):
    """Yield the nodes of a module that run when it is imported, or ever."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    left = [tree(FILES[module])]
    while left:
        node = left.pop()
        yield node
        if is_type_checking(node):
            left += node.orelse
        elif inside_functions or not isinstance(node, functions):
            left += ast.iter_child_nodes(node)


@cache
def imported_names(module, inside_functions=True, for_types=False):
    """Return every name that the module imports, in full."""
    found = []
    for node in nodes(module) if for_types else at_run_time(module, inside_functions):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def imported_modules(module, inside_functions=True, for_types=False):
    """Return the modules of the package that the module imports."""
    return [
        name if name in FILES else name.rpartition(".")[0]
        for name in imported_names(module, inside_functions, for_types)
        if name.split(".")[0] == "actorgraph"
    ]


def part(module):
    """Return the part of the package that a module belongs to: "ops" for actorgraph.ops.linalg."""
    return [*module.split("."), ""][1]


def level(module):
    (found,) = (number for number, names in enumerate(LAYERS) if part(module) in names)
    return found


# -- imports ----------------------------------------------------------------------------------


@every_module
def test_imports_point_one_way(module):
    wrong = [
        other
        for other in imported_modules(module)
        if part(other) != part(module) and level(other) >= level(module)
    ]
    assert wrong == [], f"{module} is not above what it imports"


@every_module
def test_nothing_inside_imports_the_root(module):
    if module != "actorgraph":
        assert "actorgraph" not in set(imported_modules(module))


@every_module
def test_who_moves_data_and_parameters_knows_no_graphs(module):
    if part(module) in ("data", "io", "schedules", "solvers") and module != IN_GRAPHS:
        assert not {part(other) for other in imported_modules(module)} & {"graph", "node", "ops"}


def test_no_import_cycles():
    edges = {module: set() for module in FILES}
    for module in FILES:
        for other in imported_modules(module, inside_functions=False):
            edges[module].add(other)
            package = other.rpartition(".")[0]
            # Importing a submodule from outside runs its package's __init__ first.
            if package != "actorgraph" and not module.startswith(package):
                edges[module].add(package)
    done = set()
    while len(done) < len(edges):
        ready = {module for module, others in edges.items() if others <= done} - done
        assert ready, f"a cycle among {sorted(set(edges) - done)}"
        done |= ready


@cache
def circles():
    """Return the groups of files each of which knows all others of its group, types included."""
    knows = {module: set(imported_modules(module, for_types=True)) - {module} for module in FILES}
    count = 0
    while count != len(knows):  # who knows nobody, or is known by nobody, is in no circle
        count = len(knows)
        known = set().union(*knows.values())
        knows = {m: o & knows.keys() for m, o in knows.items() if m in known and o & knows.keys()}
    for middle in knows:
        for others in knows.values():
            if middle in others:
                others |= knows[middle]
    groups = {frozenset(o for o in others if m in knows[o]) for m, others in knows.items()}
    return sorted(map(sorted, filter(None, groups)), key=len, reverse=True)


def test_few_files_know_one_another_even_by_the_names_of_types():
    assert [circle for circle in circles() if len(circle) > LARGEST_CIRCLE] == []


def test_nothing_is_imported_by_a_string_but_what_the_root_gives_late():
    wrong = [
        relative(module)
        for module in FILES
        for node in nodes(module)
        if isinstance(node, ast.Call) and called_name(node) in ("import_module", "__import__")
    ]
    assert set(wrong) == {"__init__.py"}


def test_cupy_is_imported_in_one_file():
    importing = [
        relative(module)
        for module in FILES
        if any(name.split(".")[0] == "cupy" for name in imported_names(module))
    ]
    assert importing in ([], ["devices/cuda.py"])


# -- what an op is lives with it --------------------------------------------------------------


def decisions_by_name(module):
    """Yield what compares the name of an op, or looks it up."""
    for node in nodes(module):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call) and called_name(node) in ("get", "startswith", "endswith"):
            parts = [node.func.value if isinstance(node.func, ast.Attribute) else node, *node.args]
        yield from (ast.unparse(node) for part in parts if ast.unparse(part).endswith("op.name"))


def tables_of_ops(module):
    """Yield displays that hold three names of ops or more, and no other strings."""
    for node in nodes(module):
        if isinstance(node, (ast.Set, ast.List, ast.Tuple, ast.Dict)):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            words = {item.value for item in items if isinstance(item, ast.Constant)}
            if len(words) >= 3 and words <= set(REGISTRY) - UFUNCS:
                yield ast.unparse(node)


UFUNCS = {op.ufunc for op in REGISTRY.values()}


@every_module
def test_no_module_but_the_ops_and_rules_of_rewriting_knows_ops_by_name(module):
    """What others need to know of an op stands in its declaration, as a field of `op.Op`."""
    if part(module) not in ("op", "ops", "rewrite", "drawing"):  # which has shapes for leaves
        assert [*decisions_by_name(module), *tables_of_ops(module)] == []


# -- threads ----------------------------------------------------------------------------------


def called_name(node):
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@every_module
def test_threads_are_started_in_scheduler_and_devices(module):
    calls = [node for node in nodes(module) if isinstance(node, ast.Call)]
    started = {called_name(node) for node in calls} & STARTS_THREADS
    started |= {name for name in imported_names(module) if name.startswith("concurrent.futures")}
    assert not started or relative(module).startswith(THREADS)


@pytest.mark.parametrize("page", ["docs/design.md", "CONTRIBUTING.md"])
def test_the_pages_say_where_threads_are_started(page):
    (told,) = re.findall(
        r"threads\s+are\s+started\s+in([^.]*(?:\.py[^.]*)*?)\s+only", (ROOT / page).read_text()
    )
    assert sorted(re.findall(r"`(.*?)`", told)) == sorted(THREADS)


@pytest.mark.parametrize("module", ["actorgraph.node_actor", "actorgraph.channels"])
def test_actors_and_channels_know_no_threads_and_no_loops(module):
    roots = {name.split(".")[0] for name in imported_names(module)}
    assert not roots & {"threading", "_thread", "queue", "concurrent", "asyncio", "anyio", "trio"}


# -- names and documentation ------------------------------------------------------------------


def is_function_or_class(value):
    value = inspect.unwrap(value) if callable(value) else value  # a cache wraps functions
    return inspect.isfunction(value) or inspect.isclass(value)


def defined(module):
    """Yield (name, value) of what the module itself defines in public: functions and classes."""
    loaded = importlib.import_module(module)
    for node in tree(FILES[module]).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        for name in names:
            value = getattr(loaded, name) if name[0] != "_" else None
            # What a call has made is ours too: declared ops are functions.
            ours = getattr(value, "__module__", "").startswith("actorgraph")
            if ours and is_function_or_class(value):
                yield name, value


@every_public_module
def test_all_is_true_and_sorted(module):
    """Where it stands: elsewhere the underscore says what is a module's own."""
    loaded = importlib.import_module(module)
    listed = list(getattr(loaded, "__all__", []))
    assert listed == sorted(set(listed))
    assert [name for name in listed if not hasattr(loaded, name)] == []
    if listed and part(module) != "ops":  # a family lists what users call, and shares more
        assert [name for name, _ in defined(module) if name not in listed] == []


@cache
def namespaces():
    """Return the package, the modules that it lists, and those that they list."""
    found = [ag]
    for module in found:
        listed = (getattr(module, name) for name in module.__all__)
        found += [one for one in listed if isinstance(one, ModuleType) and one not in found]
    return found


def test_dir_of_a_namespace_lists_what_is_public_and_nothing_else():
    assert {ag.source, ag.devices, ag.types, ag.nn.init, ag.solvers.schedules} < {*namespaces()}
    wrong = [one.__name__ for one in namespaces() if dir(one) != sorted(one.__all__)]
    assert wrong == []


def attribute_docstrings(module):
    """Return the names that a string below their assignment documents."""
    body = tree(FILES[module]).body
    found = set()
    for node, following in pairwise(body):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@every_public_module
def test_every_public_name_is_documented(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    undocumented = []
    for name in getattr(loaded, "__all__", dict(defined(module))):
        value = getattr(loaded, name)
        if isinstance(value, ModuleType) or name == "__version__":
            continue
        if is_function_or_class(value):
            text = value.__doc__ or ""
            # A dataclass without a docstring gets its signature for one.
            if not text.strip() or text.startswith(f"{name}("):
                undocumented.append(name)
        elif not any(
            name in attribute_docstrings(other)
            for other in (module, *imported_modules(module))
            if hasattr(importlib.import_module(other), name)
        ):
            undocumented.append(name)
    assert undocumented == []


@pytest.mark.parametrize("folder", sorted({part(module) for module in FILES} - {"__main__"}))
def test_examples_in_docstrings_are_true(folder, monkeypatch):
    """Ops that examples define stay in a registry of their own, those of modules do not."""
    modules = [importlib.import_module(module) for module in FILES if part(module) == folder]
    monkeypatch.setattr(op, "_registry", dict(REGISTRY))
    runner, report = doctest.DocTestRunner(verbose=False), io.StringIO()
    for module in modules:
        for example in doctest.DocTestFinder().find(module):
            runner.run(example, out=report.write)
    assert runner.failures == 0, report.getvalue()


def test_every_public_function_and_class_has_an_example_that_imports_the_package():
    shown = {
        f"{module.__name__}.{name}": getattr(module, name).__doc__ or ""
        for module in namespaces()
        for name in module.__all__
        if is_function_or_class(getattr(module, name))
    }
    assert len(shown) > 700
    missing = [name for name, text in shown.items() if ">>> import actorgraph as ag" not in text]
    assert missing == [], "write an Examples section, or for an op name it in ops/_foreign.py"


def test_help_of_a_machine_lists_its_parameters():
    for machine in (ag.ActorMachine, ag.TapeMachine, ag.LispMachine):
        listed = str(inspect.signature(machine))
        assert all(f"{name}: " in listed for name in ("outputs", "wrt", "workers", "device"))
        shown = pydoc.plain(pydoc.render_doc(machine))
        one, other = [re.sub(r"[\s|]", "", text) for text in (listed, shown)]  # lines and margin
        assert one in other


# -- size and form ----------------------------------------------------------------------------


@cache
def classes():
    """Return all classes of the package, private ones and those in functions too, by name."""
    found = {}
    for module in FILES:
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append((module, node))
    return found


def duplicated_names():
    """Return the names of classes that stand in several files, with these.

    A parameter and a buffer of a graph, and of modules, are one thing to users: by contract they
    have one name.
    """
    return {
        name: [module for module, _ in places]
        for name, places in classes().items()
        if len(places) > 1 and name not in ("Buffer", "Parameter")
    }


def test_the_name_of_a_class_stands_in_one_file():
    assert duplicated_names() == {}


def methods(cls):
    """Return the methods that a class implements: no dunders, nothing abstract, no hooks."""
    return {
        node.name
        for node in cls.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if not node.name.startswith("__")
        if not any("abstract" in ast.unparse(one) for one in node.decorator_list)
        if not is_hook(node)
    }


def is_hook(function):
    """Return whether a method does nothing, refuses, or gives a plain value: it is to be taken."""
    body = [one for one in function.body if not isinstance(one, ast.Expr)]
    if len(body) != 1:
        return not body
    (only,) = body
    plain = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Name)
    return isinstance(only, ast.Raise) or (
        isinstance(only, ast.Return) and isinstance(only.value, plain)
    )


def ancestors(cls):
    """Yield the classes of the package that a class inherits from; hooks are there to be taken."""
    for base in cls.bases:
        name = re.match(r"[\w.]+", ast.unparse(base))[0].rpartition(".")[2]
        for _, found in classes().get(name, ()) if name != "Instrument" else ():
            yield found
            yield from ancestors(found)


OTHERWISE = {
    ("BatchNorm2d", "make"), ("BodyGraph", "_variable"), ("BodyGraph", "apply"),
    ("BodyGraph", "assign"), ("BodyGraph", "bind"), ("BodyGraph", "lift"),
    ("BodyGraph", "next_draw"), ("BodyGraph", "run_number"),
    ("LSTM", "_shapes"), ("ModuleDict", "_own"), ("ModuleList", "_own"),
    ("_Forward", "size_of_weight"),
}  # fmt: skip
"""Layers and solvers that do as their like, but for this; and graphs of bodies, which capture."""


def test_no_subclass_overrides_an_implemented_method():
    wrong = [
        f"{module}: {cls.name}.{name}, which {ancestor.name} implements"
        for places in classes().values()
        for module, cls in places
        for ancestor in ancestors(cls)
        for name in methods(cls) & methods(ancestor)
        if (cls.name, name) not in OTHERWISE
    ]
    assert wrong == []


def attributes(cls):
    """Return what an instance of a class has of its own: slots, fields, what is set on `self`."""
    found = set()
    for node in cls.body:
        if isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            found.update(ast.literal_eval(node.value))
    for node in ast.walk(cls):
        set_here = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if set_here and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return {name for name in found if not name.startswith("__")}


def test_no_class_has_more_attributes_than_one_can_hold_in_the_head():
    counts = {
        cls.name: len(attributes(cls).union(*map(attributes, ancestors(cls))))
        for places in classes().values()
        for _, cls in places
    }
    assert {name: count for name, count in counts.items() if count > MOST_ATTRIBUTES} == {}


def test_a_warm_run_passes_few_files():
    x = ag.Graph().input("x", (8,))
    y = x
    for _ in range(20):
        y = np.tanh(y)
    feeds, calls = {"x": np.ones(8, "float32")}, []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls.append(frame.f_code.co_filename)

    with ag.ActorMachine([y], workers=2) as machine:
        for _ in range(40):
            machine.run_sync(feeds)
        sys.setprofile(note)
        try:
            machine.run_sync(feeds)
        finally:
            sys.setprofile(None)
    assert 0 < len(calls) <= CALLS_OF_A_RUN
    assert len(set(calls)) <= FILES_OF_A_RUN


def statements(node):
    """Yield what stands below a node, but for what is in expressions: `ast.walk` takes longer."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def too_long(path):
    """Return what is too long in a file: its name, names of functions."""
    found = [path.name] if len(path.read_text().splitlines()) > LONGEST_FILE else []
    for node in statements(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and body[-1].end_lineno - body[0].lineno + 1 > LONGEST_FUNCTION:
                found.append(node.name)
    return found


@every_module
def test_files_and_functions_are_short(module):
    assert too_long(FILES[module]) == []


@pytest.mark.parametrize("folder", ["tests", "examples", "benchmarks", "docs"])
def test_files_and_functions_outside_of_the_package_are_short_too(folder):
    assert [part for path in (ROOT / folder).rglob("*.py") for part in too_long(path)] == []


@every_module
def test_lambdas_stand_in_tables_only(module):
    """A lambda inside a function has no name in a traceback; declarations of ops are tables.

    Allowed are all lambdas of statements at module level, such as calls that declare ops and dicts
    of functions, and those that a function of `ops` gives to a declarer as an argument.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = []
    for function in (node for node in nodes(module) if isinstance(node, functions)):
        declared = {
            id(argument)
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and called_name(call) in ("Op", "unary", "binary")
            for argument in ast.walk(call)
        }
        wrong += [
            ast.unparse(node)
            for node in ast.walk(function)
            if isinstance(node, ast.Lambda) and id(node) not in declared
        ]
    assert wrong == []


@each("folder", ["actorgraph", "tests", "examples", "benchmarks", "docs"])
def test_nothing_is_left_to_do_in_comments(folder):
    mark = re.compile("TO" + r"DO|FIX" + "ME|XX" + "X")
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    assert [str(path) for path in files if mark.search(path.read_text())] == []


# -- what an import costs ---------------------------------------------------------------------

IMPORT = """
import signal, sys, threading
from time import process_time
import numpy, anyio, threadpoolctl
handlers = [signal.getsignal(number) for number in signal.valid_signals()]
modules = set(sys.modules)
started = process_time()
import actorgraph
print(process_time() - started)
print(threading.active_count())
print(handlers == [signal.getsignal(number) for number in signal.valid_signals()])
print(*{name.partition(".")[0] for name in set(sys.modules) - modules})
"""


def test_import_has_no_side_effects_and_brings_nothing_heavy():
    _, threads, same_handlers, *modules = printed_by(IMPORT)
    assert threads == "1"
    assert same_handlers == "True"
    assert not HEAVY & set(modules)


def test_import_is_cheap_once_bytecode_is_cached(tmp_path):
    cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    _, *seconds = [float(printed_by(IMPORT, **cached)[0]) for _ in range(3)]
    assert min(seconds) * 1e3 < IMPORT_MS
