"""Seeing what machines do: recordings of runs, and hooks for other tools."""

from actorgraph.instrument import Instrument
from actorgraph.trace.using import use

__all__ = ["Instrument", "use"]
