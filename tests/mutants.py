"""Do the tests hold what they claim? `python -m tests.mutants` changes the engine and runs them.

A mutant is a copy of this repository in which one comparison, condition, number, boolean or
operator of one module of the engine is another: in Python by cosmic-ray, in LLVM text by
`INSTRUCTIONS`.  The tests of that module must fail on it ("killed"), or not end: machine code may
loop without the GIL, so a process that takes much longer than without a change is killed.  So many
mutants are drawn for each module; the share of killed ones and the change of each survivor are
printed, and the exit status is 1 below `WANTED`.

A survivor is read by somebody: it is a test that is missing, code that can go, or a change that
means the same (another bound of a heuristic, a hint).  Tests in `tests/races` replace lines of the
scheduler by their text: they fail where such a line is another, whatever it does.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
WANTED = 0.85
MACHINES = ["tests/races", "tests/machines"]
GRAPHS = [
    "tests/test_graph.py", "tests/test_hash_consing.py", "tests/test_odd_values.py",
    "tests/ops/test_random.py",
]  # fmt: skip
ANSWERS = ["tests/machines/test_conformance.py", "tests/machines/test_random_graphs.py"]
MODULES = {
    "scheduler.py": [
        "tests/test_threads.py", "tests/test_tiles.py", "tests/races/test_steal.py",
        "tests/machines/test_runs.py", "tests/test_interrupts.py", *MACHINES,
    ],
    "channels.py": [
        "tests/test_channels.py", "tests/test_node_actor.py", "tests/machines/test_check.py",
        "tests/races",
    ],
    "graph.py": [
        *GRAPHS, "tests/test_copies.py", "tests/test_parameters.py",
        "tests/machines/test_buffers.py", "tests/autodiff",
    ],
    "node.py": [*GRAPHS, "tests/test_mistakes.py", "tests/test_names_of_others.py"],
    "autodiff/reverse.py": ["tests/autodiff", "tests/machines/test_conformance.py"],
    "devices/helpers.py": [
        "tests/devices/test_helpers.py", "tests/lower/test_strands.py", "tests/lower/test_dense.py",
    ],
    "devices/listed.py": [
        "tests/devices/test_listed.py", "tests/lower/test_table.py", "tests/lower/test_layouts.py",
    ],
    "devices/native.py": [
        "tests/devices/test_structs.py",
        "tests/lower/test_table.py", "tests/lower/test_loop_table.py", "tests/lower/test_laps.py",
        "tests/devices/test_background.py", "tests/devices/test_helpers.py",
    ],
    "devices/strands.py": [
        "tests/devices/test_strands.py", "tests/lower/test_strands.py",
        "tests/devices/test_helpers.py", "tests/lower/test_laps.py",
    ],
    "devices/structs.py": ["tests/devices/test_structs.py", "tests/lower/test_table.py"],
    "devices/trials.py": ["tests/devices/test_trials.py"],
    "devices/walk_text.py": [
        "tests/lower/test_table.py", "tests/lower/test_loop_table.py", "tests/lower/test_laps.py",
        "tests/lower/test_table_rows.py", "tests/lower/test_quick_rows.py",
    ],
    "lower/laps.py": ["tests/lower/test_laps.py", "tests/lower/test_loop_table.py"],
    "lower/layouts.py": ["tests/lower/test_layouts.py", "tests/lower/test_table.py"],
    "lower/parts.py": [
        "tests/lower/test_parts.py", "tests/lower/test_stepping.py", "tests/lower/test_table.py",
    ],
    "lower/placing.py": [
        "tests/devices/test_placement.py", "tests/devices/test_lanes.py",
        "tests/devices/test_sim.py", "tests/devices/test_capture.py",
        "tests/devices/test_training.py", "tests/devices/test_pipelines.py",
    ],
    "lower/quick_rows.py": [
        "tests/lower/test_quick_rows.py", "tests/lower/test_dense.py",
        "tests/devices/test_windowing.py", "tests/lower/test_loop_table.py",
        "tests/lower/test_laps.py",
    ],
    "lower/regions.py": [
        "tests/lower/test_cuts.py", "tests/lower/test_split_backward.py",
        "tests/lower/test_sends.py", "tests/machines/test_sums.py", "tests/machines/test_check.py",
        "tests/machines/test_costs.py", "tests/lower/test_parts.py", "tests/pipeline/test_tasks.py",
        *ANSWERS,
    ],
    "lower/splitting.py": ["tests/lower/test_splitting.py", "tests/lower/test_strands.py"],
    "lower/strands.py": ["tests/lower/test_strands.py", "tests/lower/test_laps.py"],
    "lower/table.py": [
        "tests/lower/test_table.py", "tests/lower/test_table_sizes.py",
        "tests/lower/test_layouts.py", "tests/lower/test_strands.py", "tests/lower/test_guard.py",
    ],
    "machines/admission.py": [
        "tests/machines/test_admission.py", "tests/races/test_start.py",
        "tests/machines/test_max_bytes.py", "tests/devices/test_max_bytes.py",
        "tests/machines/test_runs.py", "tests/machines/test_direct_runs.py",
        "tests/machines/test_holdings.py", "tests/machines/test_what_a_run_sees.py",
    ],
    "machines/claim.py": [
        "tests/machines/test_max_bytes.py", "tests/devices/test_max_bytes.py",
        "tests/machines/test_sums.py", "tests/pipeline/test_max_bytes.py",
    ],
    "machines/core.py": [
        "tests/races/test_stop.py", "tests/races/test_start.py", "tests/races/test_idle.py",
        "tests/machines/test_runs.py", "tests/machines/test_direct_runs.py",
        "tests/machines/test_runs_on_the_loop.py", "tests/pipeline/test_ends.py", *MACHINES,
        "tests/test_interrupts.py",
    ],
    "machines/inline.py": [
        "tests/machines/test_inline.py", "tests/machines/test_direct_runs.py",
        "tests/machines/test_memory.py", "tests/machines/test_feeds.py",
        "tests/lower/test_table.py", "tests/machines/test_out_of_memory.py", *ANSWERS,
    ],
    "machines/network.py": [
        "tests/machines/test_network.py", "tests/machines/test_check.py",
        "tests/machines/test_runs.py", "tests/machines/test_errstate.py",
        "tests/machines/test_memory.py", "tests/machines/test_out_of_memory.py",
        "tests/machines/test_runs_on_the_loop.py", "tests/machines/test_async_ops.py",
        "tests/races/test_join.py", *ANSWERS,
    ],
    "machines/reader.py": [
        "tests/machines/test_what_a_run_sees.py", "tests/machines/test_memory.py",
        "tests/machines/test_bad_input.py", "tests/machines/test_direct_runs.py",
        "tests/machines/test_step.py", "tests/devices/test_training.py",
        "tests/machines/test_out_of_memory.py", *ANSWERS,
    ],
    "machines/step.py": [
        "tests/machines/test_step.py", "tests/pipeline/test_steps.py",
        "tests/machines/test_direct_runs.py", "tests/machines/test_what_a_run_sees.py",
        "tests/devices/test_training.py", "tests/solvers", "tests/test_interrupts.py",
    ],
    "machines/tuner.py": ["tests/machines/test_costs.py", "tests/machines/test_direct_runs.py"],
    "memory/buffers.py": [
        "tests/memory", "tests/machines/test_memory.py", "tests/lower/test_parts.py",
        "tests/lower/test_table.py", *ANSWERS,
    ],
    "memory/packing.py": ["tests/memory", "tests/machines/test_memory.py", *ANSWERS],
    "pipeline/lanes.py": ["tests/pipeline", "tests/devices/test_pipelines.py"],
    "schedules/simulation.py": ["tests/schedules", "tests/pipeline"],
    "scratch.py": ["tests/memory/test_recycling.py", "tests/memory/test_keeping.py"],
    "serving/dispatcher.py": [
        "tests/serving/test_dispatcher.py", "tests/serving/test_model.py",
        "tests/serving/test_in_place.py", "tests/serving/test_overload.py",
        "tests/serving/test_storms.py", "tests/serving/test_settings.py",
        "tests/serving/test_streams.py", "tests/serving/test_spans.py",
    ],
}  # fmt: skip
"""Each module, and the tests that claim something of it, the most likely first."""

OPERATORS = (
    "core/AddNot", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/NumberReplacer",
    "core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak", "core/ZeroIterationForLoop", "core/ExceptionReplacer",
    "core/ReplaceComparisonOperator", "core/ReplaceBinaryOperator", "core/ReplaceUnaryOperator",
)  # fmt: skip

INSTRUCTIONS = (
    (r"icmp eq", "icmp ne"), (r"icmp ne", "icmp eq"), (r"icmp slt", "icmp sle"),
    (r"icmp sge", "icmp sgt"), (r"icmp sgt", "icmp sge"), (r"icmp ult", "icmp ule"),
    (r"= add ", "= sub "), (r"= sub ", "= add "), (r"= and ", "= or "), (r"= or ", "= and "),
    (r"(?<= i64 )0\b", "1"), (r"(?<=\[)0(?=, )", "1"), (r"(?<= i64 )1\b", "0"),
    (r"(label %[\w.]+), (label %[\w.]+)", r"\2, \1"),
    (r"(= select i1 %[\w.]+), (.+), (.+)", r"\1, \3, \2"),
    (r"\b(store|call void) .*", ""),
)  # fmt: skip
"""Changes of a line of LLVM text: what is looked for, and what is there instead."""


@dataclass(frozen=True)
class Mutant:
    """One change: the text of a module, and the line that differs."""

    module: str
    line: int
    operator: str
    text: str
    change: str


def drawn(module, count, rng):
    """Return `count` mutants of a module, each of another place in it where there are so many."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    source = (ROOT / "actorgraph" / module).read_text()
    tree, places = get_ast(source), in_machine_text(source)
    for name in plugins.operator_names():
        if not name.startswith(OPERATORS) or name.endswith(("_Eq_Is", "_NotEq_IsNot")):
            continue
        operator = plugins.get_operator(name)()
        found = [
            (start, node)
            for node in ast_nodes(tree)
            for start, _ in operator.mutation_positions(node)
        ]
        for occurrence, (start, node) in enumerate(found):
            if not _is_declared(node):
                made = partial(mutate_code, source, operator, occurrence)
                places.setdefault(start, []).append((name, made))
    chosen = []
    for start in rng.sample(sorted(places), len(places)):
        name, made = rng.choice(places[start])
        text = made()
        if len(chosen) == count:
            break
        if text is not None and text != source and _is_python(text):
            chosen.append(Mutant(module, start[0], name, text, _change(source, text)))
    return chosen


def in_machine_text(source):
    """Return what can be changed in the LLVM text of a module, by place, with its kind."""
    places, lines = {}, source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if re.match(r"\s+(%[\w.{}]+ = [a-z]|store |br |ret |call void )", line):
            for looked_for, instead in INSTRUCTIONS:
                for found in re.finditer(looked_for, line):
                    changed = line[: found.start()] + found.expand(instead) + line[found.end() :]
                    text = "".join([*lines[:number], changed, *lines[number + 1 :]])
                    places[number + 1, found.start()] = [("LLVM text", partial(str, text))]
    return places


def _is_declared(node):
    """Whether a place of a syntax tree only declares something.

    It is in an annotation, a decorator or a stub of a function, or says that a `zip` is ``strict``.
    """
    while node.parent is not None:
        inside, node = node, node.parent
        if node.type in ("decorator", "tfpdef"):
            return True
        if node.type == "argument" and node.get_code().strip().startswith("strict="):
            return True
        if node.type == "annassign" and inside is node.children[1]:
            return True
        if node.type == "funcdef":
            return (
                inside is node.annotation or re.search(r": \.\.\.\s", node.get_code()) is not None
            )
    return False


def _is_python(text):
    """Whether a text compiles without a warning, which would fail any test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _change(before, after):
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    return next((f"{a.strip()}  ->  {b.strip()}" for a, b in lines if a != b), "lines")


def ends(mutant, copy, most_s):
    """Return how the tests of a mutant end in a copy of the repository, as `outcome` does."""
    path = copy / "actorgraph" / mutant.module
    before = path.read_text()
    path.write_text(mutant.text)
    try:
        return outcome(copy, MODULES[mutant.module], most_s)
    finally:
        path.write_text(before)


def in_order(copy, targets):
    """Return the files of targets, each once; pytest would take folders before files in them."""
    files = []
    for target in targets:
        path = copy / target
        files += sorted(path.glob("**/test_*.py")) if path.is_dir() else [path]
    return list(dict.fromkeys(map(str, files)))


def outcome(copy, targets, most_s):
    """Return whether tests pass in a copy, or None if they did not end within about a time.

    Seconds are counted while this process runs, so that one that is stopped kills nothing.
    """
    files = in_order(copy, targets)
    call = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "--timeout=0", *files]
    with subprocess.Popen(
        call, cwd=copy,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            for _ in range(most_s):
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(1) == 0
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that tests have started


def copied(folder):
    """Return a copy of what git has of this repository."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in names.stdout.decode().split("\0")[:-1]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return folder


def main():
    """Draw, run, and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=12, help="mutants of each module")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="modules whose path holds this text")
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()

    modules = [module for module in MODULES if given.only in module]
    rng = random.Random(given.seed)
    mutants = [one for module in modules for one in drawn(module, given.count, rng)]
    ended, free, most_s = {}, SimpleQueue(), {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.workers) as pool:
        for number in range(given.workers):
            free.put(copied(Path(folder) / str(number)))

        def time_one(module):
            copy, began = free.get(), time.monotonic()
            passed = outcome(copy, MODULES[module], 3600)
            free.put(copy)
            if not passed:
                sys.exit(f"the tests fail without a change: pytest {' '.join(MODULES[module])}")
            most_s[module] = 60 + 3 * int(time.monotonic() - began)

        def try_one(mutant):
            copy = free.get()
            try:
                ended[mutant] = ends(mutant, copy, most_s[mutant.module])
                if ended[mutant] is not False:
                    how = "" if ended[mutant] else "did not end: "
                    print(f"{how}{mutant.module}:{mutant.line}: {mutant.change}", flush=True)
            finally:
                free.put(copy)

        list(pool.map(time_one, modules))
        list(pool.map(try_one, mutants))
    survivors = [mutant for mutant, passed in ended.items() if passed]

    print(f"\n{'module':28}{'mutants':>8}{'killed':>8}")
    for module in modules:
        count = sum(one.module == module for one in mutants)
        lived = sum(one.module == module for one in survivors)
        print(f"{module:28}{count:8}{count - lived:8}")
    share = 1 - len(survivors) / len(mutants)
    print(f"{'all':28}{len(mutants):8}{len(mutants) - len(survivors):8}  {share:.0%}")
    sys.exit(share < WANTED)


if __name__ == "__main__":
    main()
