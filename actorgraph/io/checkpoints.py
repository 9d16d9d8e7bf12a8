"""`save` and `load`: checkpoints in a directory, whole or not at all.

A checkpoint is a directory of at most four files.  ``checkpoint.json`` has everything but arrays,
``model.safetensors`` the weights by their names, ``arrays.safetensors`` all other arrays, and
``SHA256SUMS`` what `sha256sum -c` takes.

It is written under another name, forced to the disk, and renamed: whatever stops a process leaves
the checkpoints before.  `load` reads each file once, believes no byte that the sums do not cover,
and no number that files which are forged with their sums hold; nothing in them is code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

import numpy as np

from actorgraph._version import __version__
from actorgraph.errors import GraphError, GraphTypeError, shown, text_of
from actorgraph.io.arrays import packed_arrays, unpacked_arrays
from actorgraph.options import positive

_FORMAT = 1
_TREE, _MODEL, _ARRAYS, _SUMS = (
    "checkpoint.json", "model.safetensors", "arrays.safetensors", "SHA256SUMS",
)  # fmt: skip
_NAME = re.compile(r"checkpoint-(\d{8,18})")
_ASIDE = ".saving-"


class _Stateful(Protocol):
    """A model, solver or loader."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what it takes to go on."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from there."""


def save(
    path: str | os.PathLike[str],
    *,
    model: _Stateful | None = None,
    solver: _Stateful | None = None,
    loader: _Stateful | None = None,
    schedule: Any = None,
    rng: Any = None,
    step: int | None = None,
    keep: int = 1,
    **extra: Any,
) -> Path:
    """Add a checkpoint to a directory, and remove older ones.

    One process at a time saves in a directory.

    Parameters
    ----------
    path : path-like
        The directory; is made where it is missing.
    model, solver, loader : optional
        What has `state_dict`.
    schedule : optional
        A plateau, or another learning rate; functions of the step have no state.
    rng : numpy.random.Generator or RandomState, optional
    step : int, optional
        `load` returns it.
    keep : int
        How many checkpoints stay, this one included.
    **extra
        Trees of dicts, lists, tuples, arrays, texts and numbers; `load` returns them.

    Returns
    -------
    Path
        The directory of this checkpoint; `load` takes it in place of `path`.

    Raises
    ------
    GraphTypeError
        An extra holds what no file can; nothing was written.

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> folder, net = tempfile.mkdtemp(), ag.nn.Linear(2, 3)
    >>> ag.io.save(folder, model=net, step=7, best={"loss": 0.5}).name
    'checkpoint-00000001'
    >>> ag.io.load(folder, model=net)
    {'step': 7, 'best': {'loss': 0.5}}
    """
    positive("keep", keep)
    if isinstance(rng, Mapping):  # a state, which is taken as it is
        extra, rng = {**extra, "rng": rng}, None
    parts = _parts(solver=solver, loader=loader, schedule=schedule, rng=rng)
    states = {name: part.state_dict() for name, part in parts.items()}
    extras = extra if step is None else {"step": step, **extra}
    arrays: dict[str, Any] = {}
    tree = {
        "format": _FORMAT,
        "actorgraph": __version__,
        "model": model is not None,
        "states": _packed(states, "", arrays),
        "extras": _packed(extras, "extras", arrays),
    }
    files = {_TREE: json.dumps(tree, indent=1).encode()}
    if model is not None:
        files[_MODEL] = packed_arrays(model.state_dict())
    if arrays:
        files[_ARRAYS] = packed_arrays(arrays)
    files[_SUMS] = _sums(files)
    return _written(Path(path), files, keep)


def load(
    path: str | os.PathLike[str],
    *,
    model: _Stateful | None = None,
    solver: _Stateful | None = None,
    loader: _Stateful | None = None,
    schedule: Any = None,
    rng: Any = None,
) -> dict[str, Any]:
    """Let a model, solver and loader go on from a checkpoint, all or none.

    Parameters
    ----------
    path : path-like
        A directory that `save` was given, of which the newest checkpoint is taken, or what `save`
        has returned.
    model, solver, loader, schedule, rng : optional
        What goes on; give no more than was saved.

    Returns
    -------
    dict
        The step and the extras.

    Raises
    ------
    GraphError
        There is no checkpoint, it is damaged or of another version, or does not fit; nothing has
        changed.

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> folder, net = tempfile.mkdtemp(), ag.nn.Linear(2, 3)
    >>> path = ag.io.save(folder, model=net, step=7)
    >>> ag.io.load(folder, model=net)["step"]
    7
    """
    wanted = _parts(loader=loader, solver=solver, schedule=schedule, rng=rng, model=model)
    place = _newest(Path(path))
    files = _read(place)
    try:
        tree, weights = _unpacked_files(files)
        states, extras = tree["states"], dict(tree["extras"])
        if tree["model"]:
            states = {**states, "model": weights}
        missing = sorted(wanted.keys() - states)
    except Exception as error:
        raise GraphError(f"the checkpoint {place} is damaged: {text_of(error)}") from error
    if missing:
        raise GraphError(
            f"the checkpoint {place} has no {' and no '.join(missing)}; it has "
            f"{', '.join(states) or 'extras only'}"
        )
    try:
        _let([(part, states[name]) for name, part in wanted.items()])
    except Exception as error:
        raise GraphError(f"the checkpoint {place} does not fit: {text_of(error)}") from error
    return extras


class _Generator:
    """The state of a generator of random numbers, or of a function, which has none."""

    def __init__(self, part: Any) -> None:
        self._bits = getattr(part, "bit_generator", getattr(part, "_bit_generator", None))
        if self._bits is None and not callable(part):
            raise GraphTypeError(f"{shown(part)} has no state; expected a schedule or a generator")

    def state_dict(self) -> dict[str, Any]:
        return {} if self._bits is None else dict(self._bits.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._bits is not None:
            self._bits.state = state


def _parts(**given: Any) -> dict[str, _Stateful]:
    return {
        name: part if hasattr(part, "state_dict") else _Generator(part)
        for name, part in given.items()
        if part is not None
    }


def _let(changes: list[tuple[_Stateful, Any]]) -> None:
    """Load all states, or none: each part loads its own whole or not at all."""
    done: list[tuple[_Stateful, Any]] = []
    try:
        for part, state in changes:
            before = part.state_dict()
            part.load_state_dict(state)
            done.append((part, before))
    except BaseException:
        for part, before in done:
            part.load_state_dict(before)
        raise


# -- files --------------------------------------------------------------------------------------


def _sums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in files.items()).encode()


def _versions(path: Path) -> list[Path]:
    """Return the checkpoints in a directory, older ones first."""
    found = [(int(match[1]), one) for one in path.iterdir() if (match := _NAME.fullmatch(one.name))]
    return [one for _, one in sorted(found)]


def _written(path: Path, files: Mapping[str, bytes], keep: int) -> Path:
    if path.exists() and not path.is_dir():
        raise GraphError(f"{path} is a file; give a directory for checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    for left in path.glob(f"{_ASIDE}*"):  # of a process that was stopped
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(mkdtemp(prefix=_ASIDE, dir=path))
    try:
        for name, data in files.items():
            with (aside / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _force(aside)
        before = _versions(path)
        number = int(before[-1].name.rpartition("-")[2]) + 1 if before else 1
        place = path / f"checkpoint-{number:08d}"
        aside.rename(place)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _force(path)
    for old in (*before, place)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _force(folder: Path) -> None:
    """Have the names in a directory on the disk."""
    if os.name == "nt":
        return  # directories cannot be opened there
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _newest(path: Path) -> Path:
    if (path / _TREE).exists() or _NAME.fullmatch(path.name):
        return path
    versions = _versions(path) if path.is_dir() else []
    if not versions:
        raise GraphError(f"there is no checkpoint in {path}; ag.io.save(path, ...) writes one")
    return versions[-1]


def _read(place: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint, if they are what their sums say."""
    try:
        files = {
            name: (place / name).read_bytes()
            for name in (_TREE, _MODEL, _ARRAYS, _SUMS)
            if (place / name).is_file()  # not a pipe, at which a reader waits
        }
    except (OSError, MemoryError) as error:
        raise GraphError(f"the checkpoint {place} cannot be read: {text_of(error)}") from error
    if files.pop(_SUMS, b"") != _sums(files) or _TREE not in files:
        raise GraphError(
            f"the checkpoint {place} is damaged: its files are not what {_SUMS} says; "
            "take another copy, or an older checkpoint"
        )
    return files


def _unpacked_files(files: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    tree = json.loads(files[_TREE])
    if tree["format"] != _FORMAT:
        raise GraphError(
            f"its format is {shown(tree['format'])}, expected {_FORMAT}; it was written by "
            f"actorgraph {shown(tree.get('actorgraph'))}, this is {__version__}"
        )
    arrays = unpacked_arrays(files[_ARRAYS]) if _ARRAYS in files else {}
    weights = unpacked_arrays(files[_MODEL]) if _MODEL in files else {}
    return _unpacked(tree, arrays), weights


# -- trees --------------------------------------------------------------------------------------


def _packed(value: Any, path: str, arrays: dict[str, Any]) -> Any:
    """Return a tree as JSON; arrays go to `arrays`, and their names into the tree."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        while path in arrays:
            path += "_"
        arrays[path] = value
        return {"$scalar" if isinstance(value, np.generic) else "$array": path}
    if isinstance(value, (list, tuple)):
        parts = [_packed(part, f"{path}.{place}", arrays) for place, part in enumerate(value)]
        return {"$tuple": parts} if isinstance(value, tuple) else parts
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str) or key.startswith("$")]
        if odd:
            raise GraphTypeError(f"{path} has the key {shown(odd[0])}; a checkpoint takes texts")
        return {key: _packed(part, f"{path}.{key}".strip("."), arrays)
                for key, part in value.items()}  # fmt: skip
    raise GraphTypeError(
        f"{path} is {shown(value)}, which a checkpoint does not take; give arrays, numbers, texts, "
        "lists, tuples or dicts"
    )


def _unpacked(tree: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(part, arrays) for part in tree]
    if not isinstance(tree, dict):
        return tree
    for key, part in tree.items():
        if key == "$array":
            return arrays[part]
        if key == "$scalar":
            return arrays[part][()]
        if key == "$tuple":
            return tuple(_unpacked(part, arrays))
    return {key: _unpacked(part, arrays) for key, part in tree.items()}
