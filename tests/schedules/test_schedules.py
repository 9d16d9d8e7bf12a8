"""Schedules as data: complete, executable, drawn, saved, loaded, and refused where they are not."""

from typing import get_args

import pytest

from actorgraph.errors import ScheduleError
from actorgraph.pipeline import SCHEDULES, Action, Schedule, load, schedule, simulate
from actorgraph.schedules.orders import ORDERS, Name
from tests._each import each

every_name = pytest.mark.parametrize("name", SCHEDULES)
SIZES = [(1, 1), (1, 4), (2, 1), (3, 2), (4, 3), (4, 4), (4, 9), (5, 23)]


@every_name
@each("p, m", SIZES)
def test_every_schedule_exists_for_every_number_of_microbatches(name, p, m):
    """Making one checks that it is complete and can be executed."""
    made = schedule(name, stages=p, microbatches=m)
    assert (made.devices, made.microbatches) == (p, m)
    assert made.stages == p * ORDERS[name].chunks
    assert max(made.peak_activations) <= m


def test_what_is_printed_of_the_names_is_a_line_about_each():
    assert dict(SCHEDULES) == {name: one.about for name, one in ORDERS.items()}
    for name, about in SCHEDULES.items():
        assert f"{name!r}: {about!r}" in str(SCHEDULES)
        assert "\n" not in about
    with pytest.raises(TypeError, match="does not support item assignment"):
        SCHEDULES["mine"] = "none"


@each("name, text", [
        ("gpipe", "holds every microbatch"), ("1f1b", "holds p - d microbatches"),
        ("zb-h1", "holds p microbatches"), ("zb-v", "holds p microbatches"),
        ("zb-h2", "holds 2 p - 1"), ("dualpipe-v", "holds p + 1/2 microbatches"),
    ])  # fmt: skip
def test_what_the_lines_say_of_memory_is_what_orders_hold(name, text):
    assert text in SCHEDULES[name]
    p, m = 4, 16
    held = {
        "holds every microbatch": [m] * p,
        "holds p - d microbatches": [p - d for d in range(p)],
        "holds p microbatches": [p] * p,
        "holds 2 p - 1": [2 * p - 1] * p,
    }
    peaks = list(schedule(name, stages=p, microbatches=m).peak_activations)
    if text in held:
        assert peaks == held[text]
    else:
        assert max(peaks) == p + 0.5


@each("name", ["interleaved", "looped_bfs", "zb-h1"])
@each("v", [1, 2, 3, 4])
def test_chunks_stand_in_a_loop(name, v):
    made = schedule(name, stages=3, microbatches=5, chunks=v)
    assert made.device_of == (0, 1, 2) * v


@every_name
def test_every_stage_takes_microbatches_in_order(name):
    """Runs pass an actor in order, so actors can follow such lists only."""
    made = schedule(name, stages=4, microbatches=9)
    for lane in made.lanes:
        for stage in {action.stage for action in lane}:
            for kinds in (("F",), ("B", "BW"), ("W", "BW")):
                found = [a.microbatch for a in lane if a.stage == stage and a.kind in kinds]
                assert found == list(range(9))


@pytest.mark.parametrize("name", ["zb-v", "dualpipe-v"])
def test_chunks_stand_in_a_v(name):
    assert schedule(name, stages=3, microbatches=2).device_of == (0, 1, 2, 2, 1, 0)


@each("name", ["1f1b", "zb-h1", "zb-h2"])
@each("extra", [1, 2, 3, 9])
def test_a_longer_warmup_does_the_same_actions(name, extra):
    usual = schedule(name, stages=4, microbatches=10)
    longer = schedule(name, stages=4, microbatches=10, extra_warmup=extra)
    assert [sorted(lane) for lane in longer.lanes] == [sorted(lane) for lane in usual.lanes]
    assert longer.lanes[3] == usual.lanes[3]
    assert longer.name == f"{name} extra_warmup={extra}"
    usual_length, length = (
        [action.kind == "F" for action in made.lanes[0]].index(False) for made in (usual, longer)
    )
    assert length == min(usual_length + extra, 10)


def test_1f1b_alternates_after_its_warmup():
    assert [list(map(str, lane)) for lane in schedule("1f1b", stages=2, microbatches=3).lanes] == [
        ["0F0", "0F1", "0BW0", "0F2", "0BW1", "0BW2"],
        ["1F0", "1BW0", "1F1", "1BW1", "1F2", "1BW2"],
    ]


def test_zb_h1_delays_weights_by_the_number_of_the_device():
    lanes = schedule("zb-h1", stages=2, microbatches=3).lanes
    assert " ".join(map(str, lanes[0])) == "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2"
    assert " ".join(map(str, lanes[1])) == "1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2"


# -- text -------------------------------------------------------------------------------------


def test_the_grid_has_a_row_for_each_device_and_a_column_for_each_step():
    assert schedule("gpipe", stages=2, microbatches=2).grid().splitlines() == [
        "0 | 0F0  0F1            0BW0 0BW1",
        "1 |      1F0  1F1  1BW0 1BW1",
    ]


@every_name
@pytest.mark.parametrize("notation", ["actorgraph", "torch"])
def test_a_saved_schedule_is_loaded_as_it_was(name, notation, tmp_path):
    made = schedule(name, stages=3, microbatches=8)
    made.save(tmp_path / "plan.csv", notation=notation)
    again = load(tmp_path / "plan.csv", notation=notation)
    assert again.lanes == made.lanes
    assert again.name == "plan"


@pytest.mark.oracle
@every_name
def test_pytorch_reads_what_is_saved_in_its_notation(name, tmp_path):
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    made = schedule(name, stages=2, microbatches=4)
    made.save(tmp_path / "plan.csv", notation="torch")
    letters = {"F": "F", "I": "B", "W": "W", "B": "BW"}
    for line, lane in zip((tmp_path / "plan.csv").read_text().splitlines(), made.lanes):
        read = []
        for cell in line.split(","):
            action = schedules._Action.from_str(cell)
            parts = action.sub_actions or (action,)
            for number, part in enumerate(parts):
                kind = letters[part.computation_type.value]
                read.append(Action(part.stage_index, kind, part.microbatch_index, number > 0))
        assert tuple(read) == lane


# -- what is refused --------------------------------------------------------------------------

GOOD = ["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1B1 1W1"]


def test_a_schedule_may_be_written_by_hand():
    made = Schedule.parse(GOOD, "mine")
    assert (made.name, made.devices, made.stages, made.microbatches) == ("mine", 2, 2, 2)
    assert simulate(made, costs=(1, 1, 1)).makespan == 8


@each(
    ("lanes", "text"),
    [
        ([], "there is no device; every device needs at least one action"),
        (["0F0 0BW0", ""], "device 1 has no action"),
        (["0F0 0X0"], "'0X0' is no action; expected stage, kind .F, B, W or BW. and microbatch"),
        (["0F0 0BW0 0F1"], "device 0 does not list 0BW1; a stage needs F and either BW or both"),
        (["0BW0"], "device 0 does not list 0F0"),
        (["0F0 0B0"], "device 0 does not list 0W0"),
        (["0F0 0W0"], "device 0 does not list 0B0"),
        (["0F1 0BW1"], "device 0 does not list 0F0 and 0BW0"),
        (["0F0 0F0 0BW0"], "device 0 lists 0F0 2 times instead of once"),
        (["0F0 0B0 0W0 0BW0"], "device 0 lists 0BW0 and 0B0: BW is B and W at once"),
        (["0F0 0BW0", "1F0 1BW0 0F1 0BW1"], "stage 0 is on device 0 and on device 1"),
        (["0F0 0BW0", "0F0 0BW0"], "stage 0 is on device 0 and on device 1, which lists 0F0"),
        (["0F0 0BW0 2F0 2BW0"], "no device lists stage 1, but one lists stage 2"),
        (["+0F0 0BW0"], "device 0 joins .0F0 to None; only a forward and a backward action"),
        (["0F0 +0F1 0BW0 0BW1"], "device 0 joins .0F1 to 0F0"),
        (["0F0 +0BW0"], "cannot start 0F0.0BW0 before the forward .*, which comes later in its"),
        (["0BW0 0F0"], "device 0 cannot start 0BW0 before the forward action of stage 0"),
        (["0F0 0W0 0B0"], "device 0 cannot start 0W0 before the backward action of stage 0"),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_refused_with_what_is_wrong(lanes, text):
    with pytest.raises(ScheduleError, match=text):
        Schedule.parse(lanes)


def test_an_order_that_cannot_be_executed_names_who_waits_for_whom():
    lanes = ["0F0 0BW0 0F1 0BW1", "1F0 1F1 1BW0 1BW1"]
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(lanes)
    assert str(caught.value) == (
        "this order cannot be executed: device 0 cannot start 0BW0 before the backward action of "
        "stage 1 for microbatch 0, which device 1 does after 1F1; device 1 cannot start 1F1 before "
        "the forward action of stage 0 for microbatch 1, which device 0 does after 0BW0"
    )


def test_actions_may_be_plain_tuples():
    lanes = [[(0, "F", 0), (0, "BW", 0)], [(1, "F", 0), (1, "B", 0), (1, "W", 0)]]
    made = Schedule(lanes)
    assert made.lanes == Schedule.parse(["0F0 0BW0", "1F0 1B0 1W0"]).lanes
    assert made.lanes[1][1].kind == "B"


@pytest.mark.parametrize("action", [(0, "F"), "0F0", 3])
def test_what_is_no_action_is_refused(action):
    with pytest.raises(ScheduleError, match="an action is a tuple .stage, kind, microbatch., got"):
        Schedule([[action]])


@pytest.mark.parametrize("action", [Action(-1, "F", 0), Action(0, "F", -1), Action(0, "G", 0)])
def test_actions_count_from_0_and_have_known_kinds(action):
    with pytest.raises(ScheduleError, match="count from 0, and the kind is one of F, B, W, BW"):
        Schedule(((action,),))


@each("name, options, text", [
        ("1f1", {}, "there is no schedule '1f1'; did you mean '1f1b'.*; known are gpipe, 1f1b"),
        ("gpipe", {"stages": 0}, "stages is 0; it has to be a whole number from 1 on"),
        ("gpipe", {"microbatches": 1.5}, "microbatches is 1.5; it has to be a whole number"),
        ("interleaved", {"chunks": 0}, "chunks is 0; it has to be a whole number from 1 on"),
        ("zb-v", {"chunks": 3}, "chunks=3 does not fit 'zb-v', which has 2"),
        ("gpipe", {"chunks": 2}, "'interleaved', 'looped_bfs' and 'zb-h1' take any number"),
        ("gpipe", {"extra_warmup": 1}, "extra_warmup=1 does not fit 'gpipe', which has no warm-up"),
        ("1f1b", {"extra_warmup": -1}, "extra_warmup is -1; it has to be a whole number from 0"),
        ("zb-h1", {"chunks": 2, "extra_warmup": 40, "microbatches": 64},
         "extra_warmup=40 is too much for 'zb-h1' with 4 devices and 2 chunks; 3 always fits"),
    ])  # fmt: skip
def test_a_schedule_that_cannot_be_made_says_why(name, options, text):
    with pytest.raises(ScheduleError, match=text):
        schedule(name, **{"stages": 4, "microbatches": 8, **options})


def test_a_file_in_another_notation_is_refused(tmp_path):
    path = tmp_path / "plan.csv"
    schedule("1f1b", stages=2, microbatches=2).save(path)
    with pytest.raises(ScheduleError, match="'0BW0' is no action in PyTorch's notation"):
        load(path, notation="torch")
    with pytest.raises(ScheduleError, match="notation is 'jax'; it can be 'actorgraph' or 'torch'"):
        load(path, notation="jax")


@pytest.mark.parametrize("p", [2, 3, 4])
def test_the_extra_warmup_that_refusals_name_fits_any_number_of_chunks(p):
    for v in (1, 2, 3):
        made = schedule("zb-h1", stages=p, microbatches=6 * p, chunks=v, extra_warmup=p - 1)
        assert made.microbatches == 6 * p


def test_the_names_that_an_editor_offers_are_those_of_the_schedules():
    assert get_args(Name) == tuple(SCHEDULES)
