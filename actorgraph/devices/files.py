"""`write_whole`: files of the cache, which several processes read and write."""

from __future__ import annotations

import os


def write_whole(place: str, content: bytes) -> None:
    """Write a file atomically, and make its directory."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    draft = f"{place}.{os.getpid()}"
    with open(draft, "wb") as file:
        file.write(content)
    os.replace(draft, place)
