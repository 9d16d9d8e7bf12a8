"""Which process this is: asking the system costs 0.17 us, and only a fork changes it."""

from __future__ import annotations

import os
from typing import final

__all__ = ["THIS"]


@final
class _Process:
    """The process that runs this code; `id` is true after a fork too."""

    def __init__(self) -> None:
        self.look()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        self.id = os.getpid()


THIS = _Process()
"""This process."""
