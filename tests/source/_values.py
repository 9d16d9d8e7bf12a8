# ruff: noqa: E501, E741 - a text of a program in one line each
"""Expressions of drawn programs.

Names have kinds, so most programs run: ``s`` is a
number, ``v`` an array of three, ``p`` a part of such an array, ``l`` a list of numbers, ``t`` a pair
of a number and an array, ``d`` a dict of the two, ``i`` an index, ``f`` a function of a number.
"""

import re

_WITH_KIND = {
    "s": "abxyz",
    "v": "uvw",
    "p": "pq",
    "l": "lm",
    "t": "tr",
    "d": "dg",
    "i": "ijk",
    "f": "fh",
}
ARGUMENTS = {"x": "s", "v": "v", "l": "l", "d": "d"}


class Values:
    """Writes expressions of names of kinds; `choose` returns one of a sequence."""

    def __init__(self, choose, graph=False):
        self.choose, self.graph = choose, graph
        self.lines, self.depth, self.loops, self.budget = [], 1, 0, 14
        self.names = {}
        self.in_function = False
        self.risky = self.chance(25)  # writes into what others see, and constructs that are refused
        self.own = set()  # names of objects that no other name refers to

    def chance(self, percent):
        return self.choose(range(100)) < percent

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def of(self, kind):
        return [name for name, one in self.names.items() if one == kind]

    def has(self, kind):
        return bool(self.of(kind))

    def pick(self, kind):
        return self.choose(self.of(kind))

    def pick_own(self, kinds):
        """Return a name of these kinds to write into, and its kind; None if there is none."""
        names = [n for n, k in self.names.items() if k in kinds and (self.risky or n in self.own)]
        name = self.choose(names) if names else None
        return name, self.names.get(name)

    def share(self, text):
        """Note that another object refers to the values of the names in a text."""
        self.own -= set(re.findall(r"[a-z]+_?", text))

    def target(self, kind, nested=None):
        """Return a name to bind: an old one of the kind, or a new one."""
        if self.has(kind) and self.chance(50):
            return self.pick(kind)
        free = [n for n in _WITH_KIND[kind] if self.names.get(n, kind) == kind]
        return self.choose(free or [kind + "_new"])

    def bind(self, name, kind, value=""):
        """Bind a name; its object is its own unless the text of its value has names of others."""
        self.names[name] = kind
        if value is None:
            self.own.discard(name)
        else:
            self.own.add(name)

    # -- expressions --------------------------------------------------------------------------

    def index(self):
        if self.has("i") and self.chance(30):
            return f"{self.pick('i')} % 3"
        return self.choose(["0", "1", "2", "-1"])

    def constant(self):
        return self.choose(["0.5", "1.5", "-0.7", "2.0", "C"])

    def s(self, depth=2):
        """Return a number."""
        if depth <= 0:
            kinds = [k for k in "svltd" if self.has(k)]
            kind = self.choose([*kinds, *("s" * 3 if self.has("s") else ""), "c"])
            if kind == "c":
                return self.constant()
            name = self.pick(kind)
            return {
                "s": name,
                "v": f"{name}[{self.index()}]",
                "l": f"{name}[{self.choose(['0', '-1'])}]",
                "t": f"{name}[0]",
                "d": f'{name}["a"]',
            }[kind]
        a, b = (lambda: self.s(depth - 1)), (lambda: self.s(depth - 2))
        v = lambda: self.v(depth - 2)  # noqa: E731
        makes = [
            lambda: self.s(0),
            lambda: self.s(0),
            lambda: f"{self.s(0)} {self.choose('+-*')} {a()}",
            lambda: f"({a()}) {self.choose('+-*')} {b()}",
            lambda: f"{b()} / (1.5 + {self.s(0)} ** 2)",
            lambda: f"{self.choose(['np.sin', 'np.tanh', 'sn', 'numpy.cos', 'np.square'])}({a()})",
            lambda: f"np.exp(0.3 * np.tanh({a()}))",
            lambda: f"{self.choose(['np.sum', 'np.mean', 'np.max', 'np.linalg.norm'])}({v()})",
            lambda: f"({v()}).{self.choose(['sum', 'mean', 'min'])}()",
            lambda: f"np.dot({v()}, {v()})",
            lambda: f"({a()} if {self.test()} else {b()})",
            lambda: f"{self.choose(['times', 'early', 'held'])}({a()})",
            lambda: f"times({b()}, b={b()})",
            lambda: f"keyed({b()}, b={b()})",
            lambda: f"deep({b()}, 2)",
            lambda: f"pair({b()}, {b()})[{self.choose('01')}]",
            lambda: f"total({b()}, {b()})",
            lambda: f"({self.v(0)})[{self.index()}]",
            lambda: f"-({a()})",
            lambda: f"{self.choose(['max', 'min'])}({b()}, {b()})",
            lambda: f"abs({a()})",
            lambda: f"applied(lambda z: z * {self.s(0) if self.risky else self.constant()}, {b()})",
            *([lambda: f"named(a={b()}, b={b()})"] if self.risky else []),
        ]
        return self.choose([*makes, *self._of_others(a, b)])()

    def _of_others(self, a, b):
        """Return makers of numbers from what is no number."""
        makes = []
        if self.has("l"):
            l = self.pick("l")
            makes += [
                lambda: f"sum({l})",
                lambda: f"len({l}) * 0.1",
                lambda: f"{l}[-1] * {l}[0]",
                lambda: f"np.sum(np.array({l}))",
                lambda: f"sum([e * e for e in {l}])",
                lambda: f"total(*{l})",
            ]
            if self.risky and self.chance(20):
                makes += [
                    lambda: f"put({l}, {b()})",
                    lambda: f"popped({l})",
                    lambda: f"{l}.pop()",
                    lambda: f"grown({l}, {b()})[0]",
                ]
        if self.has("d"):
            d = self.pick("d")
            makes += [
                lambda: f'{d}["a"]',
                lambda: f'np.sum({d}["b"])',
                lambda: f'{d}.get("a", 0.5)',
                lambda: f'{d}.get("zz", {self.s(0)})',
                lambda: f"sum([np.sum({d}[k]) for k in {d}])",
            ]
        if self.has("p"):
            p = self.pick("p")
            makes += [lambda: f"np.sum({p} * {p})", lambda: f"{p}[0]"]
        if self.has("i"):
            i = self.pick("i")
            makes += [lambda: f"{a()} * {i}", lambda: f"{i} * 0.3"]
        if self.has("f"):
            f = self.pick("f")
            makes += [
                lambda: f"{f}({a()})",
                lambda: f"{'applied' if False else f}({b()})",
                *([lambda: f"applied({f}, {b()})"] if self.risky else []),
            ]
        if self.has("v") and self.risky and self.chance(20):
            w = self.pick("v")
            makes += [lambda: f"bump({w}, {b()})", lambda: f"np.sum(scaled({w}))"]
        return makes

    def v(self, depth=2):
        """Return an array of three."""
        if depth <= 0:
            kinds = [k for k in "vtd" if self.has(k)]
            if not kinds:
                return f"np.array([{self.s(0)}, {self.constant()}, {self.s(0)}])"
            kind = self.choose([*kinds, *("vvv" if "v" in kinds else "")])
            name = self.pick(kind)
            return {"v": name, "t": f"{name}[1]", "d": f'{name}["b"]'}[kind]
        a, b = (lambda: self.v(depth - 1)), (lambda: self.v(depth - 2))
        s = lambda: self.s(depth - 2)  # noqa: E731
        return self.choose(
            [
                lambda: self.v(0),
                lambda: self.v(0),
                lambda: f"({a()}) {self.choose('+-*')} {b()}",
                lambda: f"({a()}) * {s()}",
                lambda: f"{s()} + {b()}",
                lambda: f"{self.choose(['np.sin', 'np.tanh', 'sn'])}({a()})",
                lambda: f"({self.v(0)})[::-1]",
                lambda: f"np.array([{s()}, {s()}, {s()}])",
                lambda: f"({self.v(0)}).copy()",
                lambda: f"np.where({self.v(0)} > {self.constant()}, {a()}, {b()})",
                lambda: f"np.concatenate([({self.v(0)})[:1], ({self.v(0)})[1:]])",
                lambda: f"({self.v(0)}).reshape(3)",
                lambda: (
                    f"{self.choose(['np.asarray', 'np.ravel', 'np.cumsum', 'np.array'])}({b()})"
                ),
                lambda: f"({self.v(0)})[[2, 0, 0]]",
                lambda: f"({a()} if {self.test()} else {b()})",
                lambda: f"M @ ({b()})",
                lambda: f"turned({b()}, k={s()})",
                lambda: f"{self.choose(['copied', 'same', 'turned'])}({self.v(0)})",
                lambda: f"np.array([e * {s()} for e in {self.v(0)}])",
                lambda: f"np.full(3, {s()})" if self.chance(20) else f"np.zeros(3) + {s()}",
                lambda: f"np.maximum({b()}, {s()})",
                lambda: f"np.clip({b()}, -0.9, 0.9)",
            ]
        )()

    def test(self):
        makes = [
            lambda: f"{self.s(1)} {self.choose(['>', '<', '>=', '<='])} {self.constant()}",
            lambda: f"{self.s(0)} {self.choose('<>')} {self.s(0)}",
            lambda: f"{self.constant()} < {self.s(0)} < 1.1",
            lambda: f"{self.s(0)} > 0.1 {self.choose(['and', 'or'])} {self.s(0)} < 0.9",
            lambda: f"not {self.s(0)} > {self.constant()}",
            lambda: f"({self.v(0)} > 0.0).any()",
        ]
        if self.has("i"):
            makes += [lambda: f"{self.pick('i')} == 1", lambda: f"{self.pick('i')} % 2"] * 2
        if self.has("l"):
            makes += [lambda: f"len({self.pick('l')}) > 2"]
        return self.choose(makes)()
