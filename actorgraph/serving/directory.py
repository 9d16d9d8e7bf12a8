"""`Directory`: the models of a folder, each of which is reloaded when its files change."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from actorgraph.errors import GraphError, text_of
from actorgraph.serving.building import FILE
from actorgraph.serving.config import ConfigFile
from actorgraph.serving.server import Server

POLL_S = 0.3
"""Seconds between two scans of the files."""

Times: TypeAlias = frozenset[tuple[str, int, int]]
"""Path, time of modification and size of each file."""

_CONFIG = "config.toml"
_LOGGER = logging.getLogger("actorgraph")


class Directory:
    """A server of the models in a folder, from which `Server.load` reloads them.

    ``NAME/model.py`` is version "1" of a model, ``NAME/VERSION/model.py`` another version; each has
    a function ``model`` that returns what `Server.add` takes, or that and an example of the inputs.
    ``config.toml`` is the default of `config`; settings are fields of `ServerConfig`.  A folder
    without models, or with one that cannot be loaded, raises `GraphError`.
    """

    def __init__(self, path: str, config: ConfigFile | None = None, **settings: Any) -> None:
        self._path = Path(path)
        if config is None and (self._path / _CONFIG).is_file():
            config = self._path / _CONFIG
        try:
            self.server = Server(config, **settings)
            self._seen = self._found()
            # The files of each model as last loaded; None if it was unloaded.
            self._loaded: dict[tuple[str, str], Times | None] = {**self._seen}
            if not self._seen:
                raise GraphError(f"there is no model in {path!r}; expected NAME/{FILE} in it")
            self.server.expect({key: self._folder(*key) for key in self._seen}, self._newest)
            try:
                anyio.run(self.server.start)
            except BaseException:
                self.server.close()
                raise
        except (TypeError, ValueError) as error:
            raise GraphError(str(error)) from error

    def _newest(self, name: str, version: str | None) -> tuple[str | None, Path | None]:
        known = [one for one in self._found() if one[0] == name and version in (None, one[1])]
        return (known[-1][1], self._folder(*known[-1])) if known else (version, None)

    def _folder(self, name: str, version: str) -> Path:
        folder = self._path / name / version
        return folder if version != "1" or (folder / FILE).is_file() else folder.parent

    def _found(self) -> dict[tuple[str, str], Times]:
        """Return the models in the folder by name and version, and the times of their files."""
        models = {}
        for file in (*self._path.glob(f"*/{FILE}"), *self._path.glob(f"*/*/{FILE}")):
            name, *version = file.parent.relative_to(self._path).parts
            if not name.startswith("."):
                models[name, version[0] if version else "1"] = times(file.parent)
        for (name, number), own in models.items():
            if number != "1" and (name, "1") in models:  # its folder is inside version 1's
                models[name, "1"] -= own
        # The last version is the default, so "10" has to stand after "9".
        return dict(sorted(models.items(), key=_by_version))

    async def watch(self) -> None:
        """Load new and changed models, and unload removed ones, until cancelled.

        A model is loaded once two scans have found its files the same: they are complete then.
        """
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(POLL_S)
                before, self._seen = self._seen, await anyio.to_thread.run_sync(self._found)
                for key in {**self._loaded, **self._seen}:
                    now = self._seen.get(key)
                    if now == before.get(key) and now != self._loaded.get(key):
                        self._loaded[key] = now
                        tasks.start_soon(self._load, *key)

    async def _load(self, name: str, version: str) -> None:
        folder = self._folder(name, version)
        try:
            if (folder / FILE).is_file():
                await self.server.load(name, version, outputs=folder)
                _LOGGER.info("version %r of model %r was loaded", version, name)
            else:
                await self.server.unload(name, version)
                _LOGGER.info("version %r of model %r was unloaded", version, name)
        except Exception as error:  # noqa: BLE001 - the old model stays
            why = text_of(error)
            _LOGGER.warning("version %r of model %r was not loaded: %s", version, name, why)


def times(folder: str | os.PathLike[str], suffixes: tuple[str, ...] = ("",)) -> Times:
    """Return the times of the files below a folder, without hidden ones and compiled code."""
    files = set()
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            if name.endswith(suffixes) and not name.startswith("."):
                path = os.path.join(root, name)
                try:
                    stat = os.stat(path)
                except OSError:  # it was removed meanwhile
                    continue
                files.add((path, stat.st_mtime_ns, stat.st_size))
    return frozenset(files)


def _by_version(item: tuple[tuple[str, str], Times]) -> tuple[int, str, str]:
    (name, version), _ = item
    return len(version), version, name
