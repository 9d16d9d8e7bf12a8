"""The tests of machines and pipelines hold on `virtual:2` too, and the checker finds nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests._soak import SOAK

ROOT = Path(__file__).parents[2]
BY_DESIGN = {
    "test_a_busy_machine_does_not_starve_another": "both are on one lane, behind the gate",
    "test_a_cancelled_run_starts_no_further_op_of_unknown_cost": "what was launched is done",
    "test_a_coroutine_that_is_closed_ends_its_run": "a job waits for its operands in a task",
    "test_a_gradient_that_is_a_view_is_handed_out_as_it_is": "it is a copy from the device",
    "test_a_large_result_counts_when_its_run_is_gone": "memory of the host",
    "test_a_loop_in_a_stage_ends_early_when_its_run_is_cancelled": "a stage's loop is the host's",
    "test_a_machine_that_an_op_runs_has_the_state_of_the_op": "refused: it is on the same device",
    "test_a_machine_that_trains_is_checked_forward_and_backward": "lanes have cuts of their own",
    "test_a_step_computes_long_branches_beside_each_other": "both are on one lane",
    "test_an_awaited_run_makes_no_task": "a job waits for its operands in a task",
    "test_an_idle_worker_computes_tiles_of_another": "a lane computes by itself",
    "test_an_idle_worker_takes_blocks_of_another": "a lane computes by itself",
    "test_as_many_ops_run_at_once_as_there_are_workers": "three workers, and one lane",
    "test_dims_of_none_do_not_hide_how_much_was_fed": "no run is small on a device",
    "test_neighbours_of_a_run_that_dies": "what was launched is done",
    "test_no_more_runs_are_in_flight_than_was_allowed and (2 or 3)": "one lane computes one",
    "test_one_worker_computes_all_tiles_itself": "a lane computes by itself",
    "test_ops_of_an_awaited_run_meet_too": "three workers, and one lane",
    "test_results_belong_to_whoever_holds_the_run_until_he_lets_go": "memory of the host",
    "test_tasks_share_memory_as_turns_that_run_at_once_do": "memory of the host",
    "neighbours_of_a_run_that_is_cancelled_have_the_right_bits": "what was launched is done",
    "test_a_step_is_seen_where_modes_are": "a step on a device is a run, and then an update",
    "test_activations_die_with_the_last_task_that_needs_them": "they die when the next is launched",
    "test_gradients_that_end_cotangents_come_before_what_makes_more": "memory of the host",
    "test_a_claim_counts_a_sum_that_is_written_over_once": "memory of the host",
    "test_one_actor_a_node_never_holds_more_than_three_arrays": "memory of the host",
    "test_a_traceback_shows_the_generated_line_and_the_users_line": "a lane calls the kernel",
    "test_later_failures_are_notes_of_the_first": "three workers, and one lane",
    "test_lanes_step_their_parameters_while_the_run_goes_on": "they are stepped after it",
    "test_nobody_reads_a_parameter_after_the_last_run": "its copy is kept for the next",
    "test_nothing_large_is_allocated_after_the_first_step": "memory of the host",
    "test_run_sync_inside_an_op": "refused: the other machine is on the same device",
    "test_the_log_gets_every_node_in_order": "copies are in it",
    "test_what_is_handed_out_to_be_written_is_the_parameter": "a copy of it is on the device",
}
QUICK = ["tests/machines/test_stream.py", "tests/pipeline/test_ends.py"]
FILES = [
    *QUICK,
    *[f"tests/machines/test_{name}.py" for name in (
        "async_ops", "attack", "bad_input", "batching", "blas_threads", "buffers", "check",
        "concurrency_of_ops", "conformance", "contexts", "deadlines", "errstate", "faults",
        "feeds", "holdings", "large_convolutions", "large_products", "lisp", "long_ops", "memory",
        "oracle", "overlapping", "overlapping_calls", "processes", "random_graphs", "runs",
        "runs_on_the_loop", "step", "sums", "what_a_run_sees",
    )],
    *[f"tests/pipeline/test_{name}.py" for name in (
        "automatic", "command", "cutting", "losses", "measuring", "order", "refusals", "steps",
        "sums", "tasks", "values",
    )],
]  # fmt: skip


# Not here: `direct_runs` and `costs`, which look at threads of the host; `max_bytes`, counted by
# device (see `test_max_bytes` here); pipelines' `asynchronous`, whose ops are refused on devices.


def test_what_is_left_out_by_design_is_there():
    places = [*FILES, "actorgraph/testing/_machines.py"]
    written = "".join([(ROOT / place).read_text(encoding="utf-8") for place in places])
    assert [name for name in BY_DESIGN if f"def {name.split()[0]}" not in written] == []


@pytest.mark.timeout(900 if SOAK else 60)
def test_machines_and_pipelines_hold_their_tests_on_a_device_under_the_checker():
    leave_out = " or ".join([f"({name})" for name in BY_DESIGN])
    command = [
        sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider",
        "-p", "tests.devices._elsewhere", "-k", f"not ({leave_out})",
        *(FILES if SOAK else QUICK),
    ]  # fmt: skip
    quick = os.environ | {"ACTORGRAPH_SOAK": "0", "PYTEST_ADDOPTS": ""}
    found = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-1000:]
    passed = re.search(r"(\d+) passed", found.stdout)
    assert int(passed[1]) >= 50
