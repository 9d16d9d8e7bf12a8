"""Pipelines: named schedules, a simulator of their times, and actors that run them.

`schedule` makes the actions of each device in order, `simulate` returns how long they take, how
long devices are idle and how much memory they hold; `recommend` compares all schedules under a
memory limit; a `Pipeline` trains by them, and `measure` compares its runs with predictions.

>>> from actorgraph import pipeline
>>> print(pipeline.simulate("zb-h1", stages=2, microbatches=3, costs=(1, 1, 1)).grid())
0 | F0 F1 ...B0 W0 F2 B1 W1 B2 W2
1 | ...F0 B0 F1 B1 W0 F2 B2 W1 W2
"""

from actorgraph.keywords import all_answering
from actorgraph.pipeline.measuring import Measured, measure
from actorgraph.pipeline.runner import Pipeline
from actorgraph.schedules.actions import Schedule, load
from actorgraph.schedules.dynamic import dynamic
from actorgraph.schedules.notation import Action
from actorgraph.schedules.orders import SCHEDULES, schedule
from actorgraph.schedules.recommendation import recommend
from actorgraph.schedules.simulation import Simulation, Timed, simulate

__all__ = [
    "Action", "Measured", "Pipeline", "SCHEDULES", "Schedule", "Simulation", "Timed", "dynamic",
    "load", "measure", "recommend", "schedule", "simulate",
]  # fmt: skip
__dir__ = __all__.copy

all_answering(globals())
