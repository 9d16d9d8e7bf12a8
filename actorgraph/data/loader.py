"""`DataLoader`: batches of a dataset in a seeded order, prefetched by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.data._ahead import Ahead
from actorgraph.data._draws import SAMPLE
from actorgraph.data._processes import Processes
from actorgraph.data.dataset import ArrayDataset
from actorgraph.errors import GraphError, GraphTypeError, shown, text_of
from actorgraph.keywords import answering
from actorgraph.options import flag, positive, whole

if TYPE_CHECKING:
    from numpy.random import RandomState

_Chunk = tuple[int, Any, "list[Any] | None"]
"""An epoch, the numbers of samples, and for an iterable the samples."""


@answering
class DataLoader:
    """Batches of a dataset; each iteration is an epoch.

    Batches do not depend on the number of workers: their order depends only on `seed` and the
    number of the epoch.

    Parameters
    ----------
    dataset : sequence or iterable
        An object with `len` and ``dataset[i]``, such as `ArrayDataset`, an array or a list; or an
        iterable of samples, iterated anew in each epoch.
    batch_size : int
    shuffle : bool
        Sequences are permuted.  Samples of an iterable go through a buffer of `shuffle_buffer`,
        from which each next one is drawn.
    seed : int
        From 0 to below 2**32.
    drop_last : bool
        Leave out a last batch that is not full.
    workers : int
        Threads that make batches; 0 makes them in the thread that iterates.
    prefetch : int
        Batches that each worker makes ahead.
    collate : callable, optional
        Makes a batch of a list of samples; `collate` of this module by default.
    transform : callable, optional
        Replaces each sample by its result.
    shuffle_buffer : int
    process : bool
        Make the batches in processes, for work that holds the GIL.  The loader's arguments then
        have to be picklable, and a script needs ``if __name__ == "__main__":``.

    Notes
    -----
    Breaking out of a loop ends the epoch: the next loop begins another.  `transforms` draw by seed,
    epoch and sample, so that batches do not depend on workers; transforms of your own should not
    share a generator between threads.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> dataset = ag.data.ArrayDataset(np.ones((5, 3)), np.arange(5))
    >>> loader = ag.data.DataLoader(dataset, batch_size=2, workers=1)
    >>> for x, y in loader:
    ...     print(x.shape, y)
    (2, 3) [0 1]
    (2, 3) [2 3]
    (1, 3) [4]
    >>> len(loader)
    3
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, shuffle: bool = False, *, seed: int = 0,
        drop_last: bool = False, workers: int = 0, prefetch: int = 2,
        collate: Callable[[list[Any]], Any] | None = None,
        transform: Callable[[Any], Any] | None = None, shuffle_buffer: int = 1024,
        process: bool = False,
    ) -> None:  # fmt: skip
        self._indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if isinstance(dataset, Mapping) or not (self._indexed or hasattr(dataset, "__iter__")):
            raise GraphTypeError(
                f"expected a sequence or an iterable of samples, got {shown(dataset)}; "
                "give arrays as ag.data.ArrayDataset(*arrays)"
            )
        self.dataset = dataset
        self.batch_size = positive("batch_size", batch_size)
        self.shuffle, self.drop_last = flag("shuffle", shuffle), flag("drop_last", drop_last)
        for what, value, most in (("seed", seed, 1 << 32), ("workers", workers, 1 << 16)):
            if not 0 <= whole(what, value) < most:
                raise ValueError(f"{what} must be from 0 to below {most:,}, got {value}")
        self.seed, self.workers = int(seed), int(workers)
        self.prefetch = positive("prefetch", prefetch)
        self.shuffle_buffer = positive("shuffle_buffer", shuffle_buffer)
        self.collate, self.transform = collate, transform
        if flag("process", process) and not workers:
            raise ValueError("process=True needs workers; give workers=")
        self.process = process
        self._pool: Processes | None = None
        self._epoch = self._batches = 0
        self._current: object = None  # the iteration to which the position belongs

    def __len__(self) -> int:
        """Return the number of batches of an epoch; `TypeError` if the dataset has no `len`."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of the epoch, and how many of its batches were consumed."""
        return self._epoch, self._batches

    def __iter__(self) -> Iterator[Any]:
        if self._current is not None:
            self._epoch, self._batches = self._epoch + 1, 0
        self._current = iteration = object()
        return self._iterate(iteration, self._chunks(self._epoch, self._batches))

    def _iterate(self, iteration: object, chunks: Iterator[_Chunk]) -> Iterator[Any]:
        batches: Iterable[Any] = map(self._batch, chunks)
        if self.workers:
            make = self._in_processes() if self.process else self._batch
            batches = Ahead(make, chunks, self.workers, self.workers * self.prefetch)
        for batch in batches:
            if self._current is iteration:
                self._batches += 1
            yield batch
        if self._current is iteration:
            self._epoch, self._batches, self._current = self._epoch + 1, 0, None

    def _in_processes(self) -> Callable[[_Chunk], Any]:
        if self._pool is None:
            self._pool = Processes(DataLoader._batch, self)
        return self._pool

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    # -- order ----------------------------------------------------------------------------------

    def _chunks(self, epoch: int, done: int) -> Iterator[_Chunk]:
        """Yield the chunk of each batch, from batch `done` on."""
        # NumPy promises never to change the stream of the legacy generator (NEP 19).
        from numpy.random import RandomState  # late: it takes 9 ms

        random = RandomState([self.seed, epoch]) if self.shuffle else None
        if self._indexed:
            count = len(self.dataset)
            order = np.arange(count) if random is None else random.permutation(count)
            for start in range(done * self.batch_size, count, self.batch_size):
                numbers = order[start : start + self.batch_size]
                if len(numbers) == self.batch_size or not self.drop_last:
                    yield epoch, numbers, None
            return
        read = self._read() if random is None else _shuffled(
            self._read(), random, self.shuffle_buffer
        )  # fmt: skip
        read = islice(read, done * self.batch_size, None)
        while chunk := [*islice(read, self.batch_size)]:
            if len(chunk) == self.batch_size or not self.drop_last:
                yield epoch, [number for number, _ in chunk], [sample for _, sample in chunk]

    def _read(self) -> Iterator[tuple[int, Any]]:
        number = -1
        try:
            for number, sample in enumerate(self.dataset):
                yield number, sample
        except Exception as error:
            raise GraphError(f"reading sample {number + 1} failed: {text_of(error)}") from error

    def _batch(self, chunk: _Chunk) -> Any:
        epoch, numbers, samples = chunk
        together = type(self.dataset) in (ArrayDataset, np.ndarray)
        if together and self.transform is None and self.collate is None:
            return self.dataset[numbers]
        made = []
        for place, number in enumerate(map(int, numbers)):
            SAMPLE.begin(self.seed, epoch, number)
            try:
                sample = self.dataset[number] if samples is None else samples[place]
                made.append(sample if self.transform is None else self.transform(sample))
            except Exception as error:
                raise GraphError(f"sample {number} failed: {text_of(error)}") from error
        SAMPLE.begin()
        try:
            return (self.collate or collate)(made)
        except Exception as error:
            raise GraphError(
                f"samples {', '.join(map(str, numbers))} make no batch: {text_of(error)}; "
                "make them alike by transform=, or give collate="
            ) from error

    # -- state ----------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        return {
            "samples": len(self.dataset) if self._indexed else None,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
            "shuffle_buffer": self.shuffle_buffer,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the epoch and of its consumed batches, as values of JSON.

        Prefetched batches do not count.
        """
        return {"epoch": self._epoch, "batches": self._batches, "settings": self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration give the rest of the saved epoch.

        Earlier samples of an iterable are read again, and skipped.

        Raises
        ------
        GraphError
            The state is invalid, or of a loader with another order; nothing changes.
        """
        try:
            epoch, batches = whole("epoch", state["epoch"]), whole("batches", state["batches"])
            given = dict(state["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise GraphError(f"expected a result of state_dict(), got {shown(state)}") from error
        if not (0 <= epoch < 1 << 32 and 0 <= batches < 1 << 48):
            raise GraphError(f"no loader has been at batch {batches} of epoch {epoch}")
        differ = [
            f"{name} is {shown(given.get(name))}, here {shown(own)}"
            for name, own in self._settings().items()
            if given.get(name) != own
        ]
        if differ:
            raise GraphError(f"the state is of a loader with another order: {'; '.join(differ)}")
        self._epoch, self._batches, self._current = epoch, batches, None

    def __repr__(self) -> str:
        return f"DataLoader({shown(self.dataset)}, batch_size={self.batch_size})"


def _shuffled(
    samples: Iterator[tuple[int, Any]], random: RandomState, size: int
) -> Iterator[tuple[int, Any]]:
    """Yield samples in random order, through a buffer of `size`."""
    waiting = [*islice(samples, size)]
    for sample in samples:
        place = random.randint(len(waiting))
        drawn, waiting[place] = waiting[place], sample
        yield drawn
    yield from (waiting[place] for place in random.permutation(len(waiting)))


def collate(samples: list[Any]) -> Any:
    """Return samples as a batch: arrays are stacked, also inside tuples and dicts.

    Examples
    --------
    >>> from actorgraph.data.loader import collate
    >>> collate([(1.0, "a"), (2.0, "b")])
    (array([1., 2.]), array(['a', 'b'], dtype='<U1'))
    """
    first = samples[0]
    if isinstance(first, tuple):
        return tuple(collate([*parts]) for parts in zip(*samples, strict=True))
    if isinstance(first, Mapping):
        if any(sample.keys() != first.keys() for sample in samples):
            raise ValueError("the keys differ")
        return {key: collate([sample[key] for sample in samples]) for key in first}
    return np.stack([np.asarray(sample) for sample in samples])
