"""Machines: ways to run a graph."""

from actorgraph.machines.actor import ActorMachine
from actorgraph.machines.base import Machine
from actorgraph.machines.lisp import LispMachine
from actorgraph.machines.run import Run
from actorgraph.machines.tape import TapeMachine

__all__ = ["ActorMachine", "LispMachine", "Machine", "Run", "TapeMachine"]
