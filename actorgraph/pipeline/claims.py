"""The claim of a batch on `max_bytes`: the most bytes that it can hold, for any timing of lanes.

Lanes follow their lists, so the actions that are over when one starts are known for its own lane,
and for others as far as messages imply it: these are vector clocks.  An array dies at the first
action of its lane that starts after all its uses, on any lane.  The sum of the lanes' own peaks
bounds the peak of all, since clocks do not say which moments coincide.

Sources: F. Mattern, Virtual time and global states of distributed systems, 1989.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from actorgraph.machines.claim import HOST, Claim, allocated, bytes_of
from actorgraph.machines.compiled import Binding
from actorgraph.memory.buffers import is_fresh, size_in_bytes
from actorgraph.node import Variable
from actorgraph.pipeline.staged import StagedPlan

Clock = list[int]
"""For each lane, the number of actions of its list that are over."""


def claim_of(plan: StagedPlan, binding: Binding, regular: bool) -> Claim:
    """Return the claim of a batch whose microbatches are at most as large as `binding` says.

    Not counted are dims that only a run knows, memory that ops allocate inside a call, and the
    user's arrays.  Lanes with credits are taken to hold as many microbatches as these allow.
    `regular` is ignored: with `max_bytes`, tasks keep no memory between turns.
    """
    claim = binding.claims.get(regular)
    if claim is None:
        tasks: dict[str, set[int]] = {HOST: set()}
        for index in range(len(plan.partition.tasks)):
            lane = plan.partition.lane(index)
            name = HOST if lane is None else lane.device.root.name
            tasks.setdefault(name, set()).add(index)
        clocks = _Clocks(plan) if plan.credits is None else None
        arrays = {name: _Arrays(plan, binding, indices) for name, indices in tasks.items()}
        kept = {name: one.kept(clocks) for name, one in arrays.items()}
        turn = {name: one.turn(binding) for name, one in arrays.items()}
        count = plan.schedule.devices
        on = {
            name: kept[name] + count * turn[name] + arrays[name].brought()
            for name in arrays.keys() - {HOST}
        }
        fetched = sum([arrays[name].lasting_bytes() for name in on])
        on_host = kept[HOST] + fetched + arrays[HOST].copies()
        claim = binding.claims[regular] = Claim(on_host, turn[HOST], 0, count, on)
    return claim


def sent_at_once(plan: StagedPlan, binding: Binding) -> dict[int, int]:
    """Return how many arrays of a step may live at once, for steps whose results other lanes use.

    The number for values that stay in a lane is the same in every run.
    """
    arrays = _Arrays(plan, binding, set(range(len(plan.stage_tasks))))
    clocks = _Clocks(plan) if plan.credits is None else None
    counts = {}
    for array in arrays.passing():
        index, users = arrays.task_of[array], arrays.users[array]
        lanes = {plan.stage_tasks[one].lane for one in (index, *users)}
        if len(lanes) > 1 and index not in plan.unstaged:
            if clocks is None:
                counts[array] = min(plan.schedule.microbatches, max(plan.credits or (1,)) + 1)
            else:
                counts[array] = max(accumulate(clocks.changes(arrays, array)))
    return counts


class _Arrays:
    """The arrays of a microbatch on one device that outlive their turn, and their users.

    A value from another device is copied, and the copy dies with the last of its users.

    `sizes` has bytes by the id of the step that allocates them, `task_of` its task, and `users` the
    tasks that need it, directly or through a view.  `sent` has the outputs of each task.
    """

    def __init__(self, plan: StagedPlan, binding: Binding, tasks: set[int]) -> None:
        self.plan, self.symbols, self._tasks = plan, binding.symbols, tasks
        self._specs = [plan.partition.tasks[index] for index in tasks]
        shown: dict[int, frozenset[int]] = {}
        by_id = {node.id: node for node in plan.compiled.joint.order}
        self.sent = [[by_id[n] for n in task.outputs] for task in plan.stage_tasks]
        self.sizes: Counter[int] = Counter()
        self.task_of = plan.task_of
        for step in plan.compiled.joint.order:
            size = allocated(step, binding)
            held = frozenset([step.id]) if size else frozenset()
            if step.op.memory.layout in ("any", "ordered"):  # it may be a view of an operand
                held = held.union(*[shown.get(part.id, ()) for part in step.inputs])
            shown[step.id] = held
            self.sizes[step.id] = size
        takers: dict[int, list[int]] = defaultdict(list)
        for index, task in enumerate(plan.stage_tasks):
            for number in task.inputs:
                takers[number].append(index)
        self.users: dict[int, set[int]] = {}
        self.added: set[int] = set()
        self.lasting: set[int] = set()
        for number in [n for task in plan.stage_tasks for n in task.outputs]:
            for array in shown[number]:
                self.users.setdefault(array, set()).update(takers[number])
                if number in plan.summed:
                    self.added.add(array)
                if number in plan.listed or number in plan.assigned:
                    self.lasting.add(array)
        for array in [*self.users]:
            if self.task_of[array] not in tasks:
                self.lasting.discard(array)
                if not self.users[array] & tasks:
                    del self.users[array]

    def kept(self, clocks: _Clocks | None) -> int:
        """Return the peak bytes of arrays that outlive their turns."""
        if clocks is not None:
            passing = clocks.peak(self)
        else:
            assert self.plan.credits is not None
            count = min(self.plan.schedule.microbatches, self.plan.credits[0] + 1)
            passing = count * sum([self.sizes[array] for array in self.passing()])
        return passing + self.lasting_bytes()

    def turn(self, binding: Binding) -> int:
        """Return the peak bytes that a turn needs besides."""
        most = [
            bytes_of(spec.steps, self.sent[spec.index], frozenset(), binding)[1]
            for spec in self._specs
        ]
        # The first addition to a sum allocates it.
        return max(most, default=0) + max([self.sizes[one] for one in self._summed()], default=0)

    def lasting_bytes(self) -> int:
        """Return the bytes of results: those of every microbatch, and sums over them."""
        count = self.plan.schedule.microbatches
        listed = count * sum([self.sizes[array] for array in self.lasting])
        return listed + sum([self.sizes[one] for one in self._summed()])

    def _summed(self) -> list[int]:
        return [number for number in self.plan.summed if self.task_of.get(number) in self._tasks]

    def brought(self) -> int:
        """Return the bytes of copies of feeds."""
        fed = {leaf.node.id for leaf in self.plan.compiled.joint.leaves if leaf.kind != "variable"}
        parts = {
            part.id: size_in_bytes(part, self.symbols)
            for spec in self._specs
            for step in spec.steps
            for part in step.inputs
            if part.id in fed
        }
        return self.plan.schedule.microbatches * sum(parts.values())

    def passing(self) -> Iterator[int]:
        """Yield the arrays that die before the end of the run."""
        return (array for array in self.users if array not in self.lasting)

    def copies(self) -> int:
        """Return the bytes that joining the results allocates."""
        joint, batching = self.plan.compiled.joint, self.plan.batching
        count, total = self.plan.schedule.microbatches, 0
        size = partial(size_in_bytes, symbols=self.symbols)
        for node in self.plan.names.nodes:
            times = 1 if batching.axis_of(node) is None else count
            term = joint.values[next(iter(batching.terms(node).values()))]  # of the node's type
            if not isinstance(node, Variable):
                total += size(term) * times
            derivative = joint.derivatives.get(node)
            if derivative is None:
                total += size(term) * times
            elif times > 1 or derivative.id not in self.plan.summed or not is_fresh(derivative):
                total += size(derivative) * times
        return total


class _Clocks:
    """Vector clocks of the actions of a plan."""

    def __init__(self, plan: StagedPlan) -> None:
        self.plan = plan
        self.microbatches = plan.schedule.microbatches
        self.place: dict[tuple[int, int], tuple[int, int]] = {}
        actions: list[tuple[int, tuple[int, ...], int]] = []
        lengths = [0] * plan.schedule.devices
        for lane, step in plan.schedule.order:
            for stage, kind, microbatch, _ in step:
                if tasks := plan.tasks_of(stage, kind):
                    actions.append((lane, tasks, microbatch))
                    for index in tasks:
                        self.place[index, microbatch] = lane, lengths[lane]
                    lengths[lane] += 1
        self.clocks: list[list[Clock]] = [[] for _ in lengths]
        for lane, tasks, microbatch in actions:
            self.clocks[lane].append(self._clock(lane, tasks, microbatch))
        self.unstaged = [self._clocks_of_unstaged(lane) for lane in range(len(lengths))]

    def _clock(self, lane: int, tasks: Iterable[int], microbatch: int) -> Clock:
        """Return the clock at the start of the next action of a lane's list."""
        before = self.clocks[lane]
        clock = list(before[-1]) if before else [0] * len(self.clocks)
        clock[lane] = len(before)
        for index in tasks:
            for sender in self._senders(self.plan.stage_tasks[index].foreign, microbatch):
                self._learn(clock, *sender)
        return clock

    def _senders(self, numbers: Iterable[int], microbatch: int) -> Iterator[tuple[int, int]]:
        """Yield lane and position of the actions that compute values of a microbatch."""
        for number in numbers:
            place = self.place.get((self.plan.task_of.get(number, -1), microbatch))
            if place is not None:
                yield place

    def _learn(self, clock: Clock, lane: int, position: int) -> None:
        """Merge into a clock that an action is over, and what was over when it started."""
        known = self.clocks[lane][position]
        clock[:] = map(max, clock, known)
        clock[lane] = max(clock[lane], position + 1)

    def _clocks_of_unstaged(self, lane: int) -> list[Clock]:
        """Return the clocks at the start of a lane's unstaged tasks, for each microbatch."""
        mine = [index for index in self.plan.unstaged if self.plan.stage_tasks[index].lane == lane]
        clock = [0] * len(self.clocks)
        found = []
        for microbatch in range(self.microbatches):
            for index in mine:
                for sender in self._senders(self.plan.stage_tasks[index].inputs, microbatch):
                    self._learn(clock, *sender)
            found.append(list(clock))
        return found

    def peak(self, arrays: _Arrays) -> int:
        """Return the sum over lanes of the peak bytes of the passing arrays that they made."""
        changes = [[0] * (len(clocks) + 1) for clocks in self.clocks]
        beside = 0
        for array in arrays.passing():
            index, size = arrays.task_of[array], arrays.sizes[array]
            if index in self.plan.unstaged:
                beside += size  # a lane does its unstaged tasks one at a time
                continue
            lane, _ = self.place[index, 0]
            for position, change in enumerate(self.changes(arrays, array)):
                changes[lane][position] += size * change
        return beside + sum([max(accumulate(one)) for one in changes])

    def changes(self, arrays: _Arrays, array: int) -> list[int]:
        """Return the change of an array's number of live copies at each action of its lane."""
        produced = [self.place[arrays.task_of[array], n] for n in range(self.microbatches)]
        changes = [0] * (len(self.clocks[produced[0][0]]) + 1)
        last = accumulate([position for _, position in produced], max)
        for microbatch, ((lane, position), waits) in enumerate(zip(produced, last, strict=True)):
            if array in arrays.added and not (microbatch or arrays.users[array]):
                continue  # the first term is the sum itself
            needed = self._needed(arrays.users[array], microbatch)
            needed[lane] = max(needed[lane], position + 1)
            if array in arrays.added:  # terms are added in the order of microbatches
                needed[lane] = max(needed[lane], waits + 1)
            changes[position] += 1
            changes[self._death(lane, position, needed)] -= 1
        return changes

    def _needed(self, users: Iterable[int], microbatch: int) -> Clock:
        """Return the clock from which a microbatch's value is dead."""
        needed = [0] * len(self.clocks)
        for index in users:
            place = self.place.get((index, microbatch))
            if place is not None:
                needed[place[0]] = max(needed[place[0]], place[1] + 1)
            else:
                lane = self.plan.stage_tasks[index].lane
                needed[:] = map(max, needed, self.unstaged[lane][microbatch])
                needed[lane] += 1  # the lane does it before its next action but one
        return needed

    def _death(self, lane: int, position: int, needed: Sequence[int]) -> int:
        """Return the first action of a lane that starts at or after a clock."""
        clocks = self.clocks[lane]

        def over(at: int) -> bool:
            return all(map(int.__ge__, clocks[at], needed))

        return bisect_left(range(len(clocks)), True, lo=position, key=over)
