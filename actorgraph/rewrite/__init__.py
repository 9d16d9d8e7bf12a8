"""Rewriting of graphs: passes that may be listed, chosen and switched off, and `autocast`."""

from actorgraph.keywords import all_answering
from actorgraph.rewrite._graph import chosen, passes, rewrite
from actorgraph.rewrite._pass import Pass
from actorgraph.rewrite.autocast import autocast

__all__ = ["Pass", "autocast", "chosen", "passes", "rewrite"]
__dir__ = __all__.copy

all_answering(globals())
