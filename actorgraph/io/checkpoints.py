"""`save` and `load`: atomic checkpoints in a directory.

A checkpoint is a directory of at most four files.  ``checkpoint.json`` has everything but arrays,
``model.safetensors`` the weights by their names, ``arrays.safetensors`` all other arrays, and
``SHA256SUMS`` the checksums, for `sha256sum -c`.

It is written under a temporary name, synced to disk, and renamed: if the process is stopped, older
checkpoints remain.  `load` reads each file once, trusts no byte that the checksums do not cover,
and checks all numbers, as files may be forged together with their checksums.  Nothing in the files
is code.
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
_TEMPORARY = ".saving-"


class _Stateful(Protocol):
    """A model, solver or loader."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restore the state."""


def save(
    path: str | os.PathLike[str], *, model: _Stateful | None = None,
    solver: _Stateful | None = None, loader: _Stateful | None = None, schedule: Any = None,
    rng: Any = None, step: int | None = None, keep: int = 1, **extra: Any,
) -> Path:  # fmt: skip
    """Add a checkpoint to a directory, and remove older ones.

    Only one process at a time may save in a directory.

    Parameters
    ----------
    path : path-like
        The directory, which is made if it does not exist.
    model, solver, loader : optional
        Objects with `state_dict`.
    schedule : optional
        A plateau, or another learning rate; functions of the step have no state.
    rng : numpy.random.Generator or RandomState, optional
    step : int, optional
        Returned by `load`.
    keep : int
        The number of checkpoints to keep, this one included.
    **extra
        Trees of dicts, lists, tuples, arrays, strings and numbers, which `load` returns.

    Returns
    -------
    Path
        The directory of this checkpoint, which `load` also accepts as `path`.

    Raises
    ------
    GraphTypeError
        An extra has a value that cannot be saved; nothing was written.

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
    if isinstance(rng, Mapping):  # a state, saved as an extra
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
    path: str | os.PathLike[str], *, model: _Stateful | None = None,
    solver: _Stateful | None = None, loader: _Stateful | None = None, schedule: Any = None,
    rng: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Restore a model, solver and loader from a checkpoint, all or none.

    Parameters
    ----------
    path : path-like
        The directory given to `save`, for its newest checkpoint, or a path that `save` returned.
    model, solver, loader, schedule, rng : optional
        The objects to restore; all of them must have been saved.

    Returns
    -------
    dict
        The step and the extras.

    Raises
    ------
    GraphError
        There is no checkpoint, it is damaged or of another version, or does not fit; nothing was
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
        _load_all([(part, states[name]) for name, part in wanted.items()])
    except Exception as error:
        raise GraphError(f"the checkpoint {place} does not fit: {text_of(error)}") from error
    return extras


class _Generator:
    """The state of a random generator, or the empty one of a function."""

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


def _load_all(changes: list[tuple[_Stateful, Any]]) -> None:
    """Load all states or none; each part loads its own state atomically."""
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
    """Return the checkpoints in a directory, the oldest first."""
    numbered = [
        (int(match[1]), one) for one in path.iterdir() if (match := _NAME.fullmatch(one.name))
    ]
    return [one for _, one in sorted(numbered)]


def _written(path: Path, files: Mapping[str, bytes], keep: int) -> Path:
    if path.exists() and not path.is_dir():
        raise GraphError(f"{path} is a file; give a directory for checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    for left in path.glob(f"{_TEMPORARY}*"):  # of a process that was stopped
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(mkdtemp(prefix=_TEMPORARY, dir=path))
    try:
        for name, data in files.items():
            with (temporary / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(temporary)
        before = _versions(path)
        number = int(before[-1].name.rpartition("-")[2]) + 1 if before else 1
        place = path / f"checkpoint-{number:08d}"
        temporary.rename(place)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(path)
    for old in (*before, place)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _sync(folder: Path) -> None:
    """Force the entries of a directory to disk."""
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
    """Return the files of a checkpoint, or raise if they do not match their checksums."""
    try:
        files = {
            name: (place / name).read_bytes()
            for name in (_TREE, _MODEL, _ARRAYS, _SUMS)
            if (place / name).is_file()  # not a pipe, which would block
        }
    except (OSError, MemoryError) as error:
        raise GraphError(f"the checkpoint {place} cannot be read: {text_of(error)}") from error
    if files.pop(_SUMS, b"") != _sums(files) or _TREE not in files:
        raise GraphError(
            f"the checkpoint {place} is damaged: its files do not match {_SUMS}; "
            "use another copy, or an older checkpoint"
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
    """Return a tree as JSON; arrays are added to `arrays`, and their names to the tree."""
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
            raise GraphTypeError(
                f"{path} has the key {shown(odd[0])}; keys in a checkpoint have to be strings that "
                "do not begin with '$'"
            )
        return {key: _packed(part, f"{path}.{key}".strip("."), arrays)
                for key, part in value.items()}  # fmt: skip
    raise GraphTypeError(
        f"{path} is {shown(value)}, which cannot be saved in a checkpoint; give arrays, numbers, "
        "strings, lists, tuples or dicts"
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
