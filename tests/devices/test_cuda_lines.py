"""`devices/cuda.py` runs line by line on the stand-in: none is first tried on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOME = (
    "test_cuda.py::test_values_and_gradients_are_right_however_late_streams_are[none-0]",
    "test_cuda.py::test_a_value_left_on_the_gpu_is_an_array_of_cupy_and_can_be_fetched",
    "test_cuda.py::test_what_is_missing_is_told",
    "test_cuda.py::test_a_gpu_tells_what_arrays_take_what_its_pool_has_and_what_it_has",
    "test_cuda.py::test_an_array_on_the_gpu_is_fed_without_a_copy_and_waited_for[False-0]",
    "test_cuda.py::test_a_result_left_on_the_gpu_is_taken_by_others_without_a_copy",
    "test_cuda.py::test_a_trace_has_a_track_for_each_lane_by_the_times_of_events[0]",
    "test_cuda.py::test_a_job_whose_end_is_not_there_yet_is_told_later",
    "test_cuda.py::test_a_fault_of_the_gpu_fails_what_is_under_way_there_and_all_that_comes_after[0]",
    "test_cuda.py::test_a_child_after_fork_is_told_that_a_context_does_not_survive",
    "test_cuda.py::test_stages_of_a_pipeline_are_right_on_the_gpu_and_beside_it[devices1-0]",
    "test_cuda.py::test_an_array_that_has_only_the_cuda_array_interface_is_fed_too[0]",
    "test_cuda.py::test_parts_of_a_gpu_hand_values_to_each_other_past_the_host[0]",
    "test_two_gpus.py::test_an_array_of_the_other_gpu_is_refused_with_the_ways_out",
    "test_capture.py::test_replays_have_the_bits_of_the_cpu_however_late_streams_are[3-0]",
)


def test_no_line_is_left_out():
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "tests.devices._lines",
               "-p", "no:cacheprovider", *[f"tests/devices/{one}" for one in SOME]]  # fmt: skip
    plain = {name: one for name, one in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
