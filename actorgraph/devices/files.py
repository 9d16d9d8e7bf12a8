"""Files of the user's cache directory, which several processes read and write."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

import numpy as np


def cache_path(kind: str) -> str:
    """Return the path of a file about this machine (by its network name) and version of NumPy."""
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    name = f"{kind}-{re.sub('[^A-Za-z0-9.-]', '_', host)}-numpy-{np.__version__}.json"
    return os.path.join(cache_directory(), name)


def cache_directory() -> str:
    """Return the library's directory in the user's cache."""
    return os.path.join(_users_cache(), "actorgraph")


def _users_cache() -> str:
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # others are to be ignored, says the XDG specification
        return chosen
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    return os.path.join(home, *(["Library", "Caches"] if sys.platform == "darwin" else [".cache"]))


def write_whole(place: str, content: bytes) -> None:
    """Write a file atomically, and make its directory."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    draft = f"{place}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.write(content)
        os.replace(draft, place)
    except OSError:  # each process would leave its own on a disk that is full
        with suppress(OSError):
            os.remove(draft)
        raise
