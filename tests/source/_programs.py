# ruff: noqa: E501, E741, RET503 - a text of a program in one line each
"""Programs that a test draws: plain NumPy functions with the constructs that people write."""

from pathlib import Path

from tests.source._values import _WITH_KIND, ARGUMENTS, Values

PRELUDE = Path(__file__).with_name("_helpers.py").read_text()


class Writer(Values):
    """Writes one program; `choose` returns one of a sequence."""

    def written(self):
        """Return the text of a program with a function `program`, and the kinds of its arguments."""
        given = [*ARGUMENTS.items()]
        count = self.choose([1, 1, 2, 2, 3, 4])
        given = given[:count] if count > 1 else [self.choose(given[:3])]
        self.names = dict(given)
        header = ", ".join(self.names)
        self.lines.append(f"def program({header}):")
        for _ in range(self.choose([3, 4, 5, 6, 8])):
            self.statement()
        self.ending()
        return PRELUDE + "\n\n" + "\n".join(self.lines) + "\n", dict(given)

    # -- statements ---------------------------------------------------------------------------

    def block(self, *, least=1):
        """Write a block; names that are new in it end with it."""
        before = dict(self.names)
        self.depth += 1
        start = len(self.lines)
        for _ in range(self.choose([least, 1, 2, 3])):
            self.statement()
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1
        self.names = {name: kind for name, kind in before.items() if self.names.get(name) == kind}

    def statement(self):
        self.budget -= 1
        simple = [
            self.assign_s,
            self.assign_s,
            self.assign_v,
            self.assign_v,
            self.assign_l,
            self.assign_t,
            self.assign_d,
            self.augment,
            self.augment,
            self.write,
            self.write,
            self.write,
            self.change,
            self.change,
            self.swap,
            self.view,
            self.view,
            self.ufunc_out,
            self.call_only,
            self.unpack,
            self.chained,
            self.alias,
            self.alias,
            self.comprehension,
        ]
        nested = [
            self.if_,
            self.if_,
            self.for_range,
            self.for_range,
            self.for_over,
            self.while_,
            self.function,
            self.function,
            self.return_if,
            self.with_,
            self.match,
        ]
        if self.loops and not self.in_function:
            nested += [self.leave, self.leave]
        if self.depth > 3 or self.budget < 0:
            nested = []
        self.choose([*simple, *nested])()

    def assign_s(self):
        value, name = self.s(3), self.target("s")
        self.line(f"{name} = {value}" if self.chance(90) else f"{name}: float = {value}")
        self.bind(name, "s")

    def assign_v(self):
        value, name = self.v(3), self.target("v")
        fresh = self.chance(60)
        if fresh:
            value = f"({value}) {self.choose(['* 1.5', '+ 0.0', '* C'])}"
        self.line(f"{name} = {value}")
        if not fresh:
            self.share(value)
        self.bind(name, "v", "" if fresh else None)

    def assign_l(self):
        first = [self.s(1) for _ in range(self.choose([1, 2, 3]))]
        value = self.choose([f"[{', '.join(first)}]", f"[{self.s(1)}, {self.s(0)}]"])
        if self.has("l"):
            l = self.pick("l")
            value = self.choose(
                [
                    value,
                    value,
                    f"{l} + [{self.s(0)}]",
                    f"filled({self.v(0)})",
                    *(
                        [f"{l}[:]", f"list({l})", f"grown({l}, {self.s(0)})", f"{l}.copy()"]
                        if self.risky
                        else []
                    ),
                ]
            )
        name = self.target("l")
        self.line(f"{name} = {value}")
        self.bind(name, "l")

    def assign_t(self):
        name, value = self.target("t"), f"({self.s(1)}, {self.v(1)})"
        self.line(f"{name} = {value}")
        self.share(value)
        self.bind(name, "t")

    def assign_d(self):
        value = f'{{"a": {self.s(1)}, "b": {self.v(1)}}}'
        if self.has("d") and self.risky and self.chance(50):
            d = self.pick("d")
            value = self.choose(
                [
                    f"dict({d})",
                    f"{d}.copy()",
                    f'{{**{d}, "a": {self.s(0)}}}',
                    f"set_d({d}, {self.s(0)})",
                    f"dict(a={self.s(0)}, b={self.v(0)})",
                ]
            )
        name = self.target("d")
        self.line(f"{name} = {value}")
        self.share(value)
        self.bind(name, "d")

    def augment(self):
        name, kind = self.pick_own("vlpdt" if self.chance(60) else "sssi")
        if name is None:
            return self.assign_s()
        op = self.choose(["+=", "-=", "*="])
        texts = {
            "s": lambda: f"{name} {op} {self.s(2)}",
            "v": lambda: self.choose(
                [
                    f"{name} {op} {self.v(1)}",
                    f"{name} {op} {self.s(1)}",
                    f"{name}[{self.index()}] {op} {self.s(1)}",
                    f"{name}[1:] {op} {self.s(1)}",
                ]
            ),
            "l": lambda: self.choose([f"{name} += [{self.s(1)}]", f"{name}[0] {op} {self.s(1)}"]),
            "p": lambda: self.choose([f"{name} {op} {self.s(1)}", f"{name}[0] {op} {self.s(1)}"]),
            "d": lambda: self.choose(
                [f'{name}["a"] {op} {self.s(1)}', f'{name}["b"] {op} {self.v(0)}']
            ),
            "t": lambda: f"{name}[1][0] {op} {self.s(0)}",
            "i": lambda: f"{name} += 1",
        }
        self.line(texts[kind]())

    def write(self):
        name, kind = self.pick_own(self.choose(["v", "v", "l", "d", "vlpdt"]))
        if name is None:
            return self.assign_v()
        texts = {
            "v": lambda: self.choose(
                [
                    f"{name}[{self.index()}] = {self.s(2)}",
                    f"{name}[{self.index()}] = {self.s(2)}",
                    f"{name}[1:] = {self.s(1)}",
                    f"{name}[:] = {self.v(1)}",
                    f"{name}[::2] = {self.s(1)}",
                    f"{name}[1:] = {name}[:-1]",
                    f"{name}[{name} > 0.2] = {self.s(1)}",
                    f"{name}[[0, 2]] = {self.s(1)}",
                    f"{name}[...] = {self.v(1)}",
                    f"{name}[0], {name}[1] = {name}[1], {name}[0]",
                ]
            ),
            "l": lambda: self.choose(
                [
                    f"{name}[{self.choose(['0', '-1'])}] = {self.s(1)}",
                    f"{name}[:1] = [{self.s(0)}]" if self.risky else f"{name}[0] = {self.s(2)}",
                ]
            ),
            "p": lambda: self.choose([f"{name}[0] = {self.s(1)}", f"{name}[:] = {self.s(1)}"]),
            "d": lambda: self.choose(
                [
                    f'{name}["a"] = {self.s(1)}',
                    f'{name}["b"] = {self.v(1)}',
                    f'{name}["b"][0] = {self.s(1)}',
                    f'{name}["c"] = {self.s(0)}',
                ]
            ),
            "t": lambda: f"{name}[1][0] = {self.s(1)}",
        }
        self.line(texts[kind]())

    def change(self):
        """Call a method that changes a container."""
        name, kind = self.pick_own("lldv" if self.risky else "l")
        if name is None:
            return self.assign_l()
        texts = {
            "l": lambda: self.choose(
                [
                    f"{name}.append({self.s(1)})",
                    f"{name}.append({self.s(1)})",
                    f"{name}.extend([{self.s(0)}, {self.s(0)}])",
                    f"{name}.extend({self.v(0)})",
                    f"{name}.append({self.s(0)}); {name}.pop()",
                    *(
                        [
                            f"{name}.insert(0, {self.s(0)})",
                            f"{name}.reverse()",
                            f"{name}.append({self.s(0)}); del {name}[0]",
                        ]
                        if self.risky
                        else []
                    ),
                ]
            ),
            "d": lambda: self.choose(
                [
                    f"{name}.update(a={self.s(0)})",
                    f'{name}.setdefault("a", 0.5)',
                    f'{name}.update({{"a": {self.s(0)}}})',
                ]
            ),
            "v": lambda: self.choose(
                [
                    f"{name}.sort()",
                    f"{name}.fill(0.5)",
                    f"np.copyto({name}, {self.v(0)})",
                    f"{name}.fill({self.s(0)})",
                ]
            ),
        }
        self.line(texts[kind]())

    def swap(self):
        kind = self.choose([k for k in "sv" if len(self.of(k)) > 1] or ["n"])
        if kind == "n":
            self.line(f"{self.target('s')} = {self.s(2)}") if self.has("s") else self.assign_s()
            return
        one, other = self.pick(kind), self.pick(kind)
        value = {"s": lambda: f"{other}, {one} + {self.s(0)}", "v": lambda: f"{other}, {one}"}[
            kind
        ]()
        self.line(f"{one}, {other} = {value}")

    def view(self):
        if not self.has("v"):
            self.assign_v()
            return
        v, name = self.v(0), self.target("p")
        self.line(
            f"{name} = {self.choose([f'({v})[1:]', f'({v})[:2]', f'({v})[::2]', f'part({v})', f'({v})[1:].copy()', f'({v})[:2] * 2.0', f'({v}).reshape(3, 1)[:, 0]', f'({v})[None][0]'])}"
        )
        self.share(v)
        self.bind(name, "p", None)

    def alias(self):
        kinds = [kind for kind in "svltdf" if self.has(kind)]
        if not kinds:
            self.assign_s()
            return
        kind = self.choose(kinds)
        value, name = self.pick(kind), self.target(kind)
        if kind == "v":
            value = self.choose(
                [
                    value,
                    value,
                    f"{value}[:]",
                    f"{value}.T",
                    f"{value}.reshape(3)",
                    f"np.asarray({value})",
                    f"same({value})",
                    f"{value}[::-1]",
                ]
            )
        self.line(f"{name} = {value}")
        if kind != "s":
            self.share(value)
        self.bind(name, kind, None)

    def chained(self):
        kind = self.choose("sv")
        one, other = self.choose(_WITH_KIND[kind]), self.choose(_WITH_KIND[kind])
        if any(self.names.get(n, kind) != kind for n in (one, other)):
            return self.assign_s()
        self.line(f"{one} = {other} = {self.s(2) if kind == 's' else self.v(2)}")
        self.bind(one, kind, None)
        self.bind(other, kind, None)

    def unpack(self):
        if self.has("t") and self.chance(60):
            one, other = self.target("s"), self.target("v")
            self.line(f"{one}, {other} = {self.pick('t')}")
            self.bind(other, "v", None)
        else:
            one, other = self.target("s"), self.choose("abxyz")
            if self.names.get(other, "s") != "s":
                return self.assign_s()
            if one == other:
                other = "ab"[one == "a"]
                if self.names.get(other, "s") != "s":
                    return self.assign_s()
            if self.chance(50):
                self.line(f"{one}, {other} = pair({self.s(1)}, {self.s(1)})")
            else:
                self.line(
                    f"{one}, {self.choose(['*', ''])}{other} = {self.s(1)}, {self.s(1)}"
                    if False
                    else f"{one}, {other}, _ = {self.v(1)}"
                )
            self.bind(other, "s")
        self.bind(one, "s")

    def ufunc_out(self):
        if not self.has("v") or not self.risky:
            return self.assign_v()
        v, w = self.v(0), self.pick("v")
        self.line(
            self.choose(
                [
                    f"np.sin({v}, out={w})",
                    f"np.multiply({v}, {self.s(0)}, out={w})",
                    f"np.add({v}, {self.v(0)}, {w})",
                    f"{w} = np.tanh({v}, out={w})",
                    f"np.add({v}, 1.0, out={w}[:])",
                ]
            )
        )

    def call_only(self):
        makes = [lambda: f"times({self.s(0)})"]
        if not self.risky:
            return self.assign_s()
        if self.has("l"):
            makes += [
                lambda: f"put_only({self.pick('l')}, {self.s(1)})",
                lambda: f"put({self.pick('l')}, {self.s(0)})",
                lambda: f"unused = put({self.pick('l')}, {self.s(0)})",
                lambda: f"unused = grown({self.pick('l')}, {self.s(0)})",
                lambda: f"unused = popped({self.pick('l')})",
            ]
        if self.has("v"):
            makes += [
                lambda: f"bump({self.pick('v')}, {self.s(0)})",
                lambda: f"scaled({self.pick('v')})",
                lambda: f"unused = bump({self.pick('v')}, {self.s(0)})",
            ]
        if self.has("d"):
            makes += [
                lambda: f"set_d({self.pick('d')}, {self.s(0)})",
                lambda: f"unused = set_d({self.pick('d')}, {self.s(0)})",
            ]
        if self.has("f"):
            makes += [lambda: f"unused = {self.pick('f')}({self.s(0)})"]
        self.line(self.choose(makes)())

    def comprehension(self):
        name = self.target("l")
        over = self.v(0) if not self.has("l") or self.chance(60) else self.pick("l")
        outside = self.s(0)
        self.names["e"], before = "s", self.names.get("e")
        element = self.s(1)
        test = self.choose(["", "", " if e > -0.6" if self.chance(50) else ""])
        text = self.choose(
            [
                f"[{element} for e in {over}{test}]",
                f"[e * {self.s(0)} for e in {over}]",
                f"[{outside} * n for n in range(3) if n != 1]",
                f"[e * n for n, e in enumerate({over})]",
                f"[e * n for n, e in zip({over}, {self.v(0)})]",
            ]
        )
        if before is None:
            del self.names["e"]
        else:
            self.names["e"] = before
        if not test or self.chance(50):
            self.line(f"{name} = {text}" if not test else f"{name} = {text} + [0.5]")
            self.bind(name, "l")

    def if_(self):
        self.line(f"if {self.test()}:")
        self.block()
        if self.chance(40):
            self.line(f"elif {self.test()}:")
            self.block()
        if self.chance(60):
            self.line("else:")
            self.block()

    def _loop_body(self, start=None):
        before = dict(self.names)
        self.loops += 1
        if start:
            start()
        self.block()
        self.loops -= 1
        self.names = {n: k for n, k in before.items() if self.names.get(n) == k}
        if self.chance(15):
            self.line("else:")
            self.block()

    def for_range(self):
        i = self.choose([n for n in "ijk" if self.names.get(n, "i") == "i"])
        bounds = self.choose(["2", "3", "1, 3", "3, 0, -1", "0", "4"])
        if self.has("l") and self.chance(20):
            bounds = f"len({self.pick('l')})" if self.chance(30) else "2"
        self.line(f"for {i} in range({bounds}):")
        self._loop_body(lambda: self.bind(i, "i"))

    def for_over(self):
        e = self.choose([n for n in "abe" if self.names.get(n, "s") == "s"])
        over = self.choose(["v", "l", "d"])
        if not self.has(over):
            over = "v"
        if over == "v":
            v = self.v(0)
            self.line(
                self.choose(
                    [
                        f"for {e} in {v}:",
                        f"for n_, {e} in enumerate({v}):",
                        f"for {e}, o in zip({v}, {self.v(0)}):",
                        f"for {e} in {v}[::-1]:",
                        f"for {e} in reversed({v}):",
                    ]
                )
            )
        elif over == "l":
            l = self.pick("l")
            self.line(
                self.choose(
                    [
                        f"for {e} in {l}:",
                        f"for {e} in list({l}):",
                        f"for {e} in {l}[:]:",
                        f"for n_, {e} in enumerate({l}[:]):",
                    ]
                )
            )
        else:
            d = self.pick("d")
            self.line(f"for key, val in {d}.items():")
            self.depth += 1
            self.line(f"{e} = np.sum(val) * 0.5")
            self.depth -= 1
        self._loop_body(lambda: self.bind(e, "s"))

    def while_(self):
        if self.chance(50):
            i = self.choose([n for n in "ijk" if self.names.get(n, "i") == "i"])
            self.line(f"{i} = 0")
            self.bind(i, "i")
            extra = f" and {self.test()}" if self.chance(40) else ""
            self.line(f"while {i} < 3{extra}:")
            self.depth += 1
            self.line(f"{i} += 1")
            self.depth -= 1
            self._loop_body()
        else:
            s = self.target("s")
            self.line(f"{s} = 1.0 + {self.choose(['abs', 'np.square'])}({self.s(1)})")
            self.bind(s, "s")
            self.line(f"while {s} > 0.9:")
            self.depth += 1
            self.line(f"{s} = {s} * 0.45")
            self.depth -= 1
            kept, self.names = self.names, {n: k for n, k in self.names.items() if n != s}
            self._loop_body()
            self.names = {**kept, **self.names}

    def leave(self):
        self.line(f"if {self.test()}:")
        self.depth += 1
        if self.chance(40):
            self.statement_plain()
        self.line(self.choose(["break", "continue"]))
        self.depth -= 1

    def statement_plain(self):
        before = dict(self.names)
        self.choose([self.assign_s, self.augment, self.write, self.change])()
        self.names = {n: k for n, k in before.items() if self.names.get(n) == k}

    def return_if(self):
        if self.in_function:
            self.assign_s()
            return
        self.line(f"if {self.test()}:")
        self.depth += 1
        self.line(f"return {self.s(2)}")
        self.depth -= 1

    def with_(self):
        self.line('with np.errstate(all="ignore"):')
        self.block()

    def match(self):
        if not self.has("i"):
            self.if_()
            return
        self.line(f"match {self.pick('i')}:")
        self.depth += 1
        for case in ("0", "1 | 2", "_"):
            self.line(f"case {case}:")
            self.block()
        self.depth -= 1

    def function(self):
        """Write a nested function of a number, which may see the names around."""
        name = self.choose([n for n in "fh" if self.names.get(n, "f") == "f"])
        if self.chance(25):
            kept = dict(self.names)
            self.names["z_"] = "s"
            self.line(f"{name} = lambda z_: {self.s(2)}")
            self.names = kept
            self.bind(name, "f")
            return
        kept, loops, inside = dict(self.names), self.loops, self.in_function
        default = f", c_={self.s(0)}" if self.chance(40) else ""
        self.line(f"def {name}(z_{default}):")
        self.names = {n: k for n, k in self.names.items() if n != name}
        self.names["z_"] = "s"
        if default:
            self.names["c_"] = "s"
        self.depth += 1
        self.loops, self.in_function = 0, True
        outer = self.of("s") + self.of("v") + self.of("l")
        if self.chance(50):  # a local name that hides one of outside
            hidden = self.choose("abuv")
            kind = "s" if hidden in "ab" else "v"
            self.names.pop(hidden, None)
            self.line(f"{hidden} = {self.s(1) if kind == 's' else self.v(1)}")
            self.names[hidden] = kind
        if self.chance(40) and outer:
            self.readonly_or_mutating()
        if self.chance(30):
            self.line(f"if {self.test()}:")
            self.line(f"    return {self.s(1)}")
        self.line(f"return {self.s(2)}")
        self.depth -= 1
        self.names, self.loops, self.in_function = kept, loops, inside
        self.bind(name, "f")

    def readonly_or_mutating(self):
        if self.has("l") and self.risky and self.chance(30):
            self.line(f"{self.pick('l')}.append({self.s(0)})")
        elif self.has("v") and self.risky and self.chance(30):
            self.line(f"{self.pick('v')}[{self.index()}] = {self.s(0)}")
        else:
            name = self.choose("cmn")
            if name not in self.names:
                self.line(f"{name}_ = {self.s(1)}")
                self.names[f"{name}_"] = "s"

    def ending(self):
        """Return a number that most names have a part in."""
        parts = []
        for number, (name, kind) in enumerate(self.names.items()):
            if self.chance(80):
                weight = f"{0.3 + 0.17 * number:.2f}"
                parts += {
                    "s": [f"{weight} * {name}"],
                    "v": [f"np.sum({name} * np.array([{weight}, 0.5, -0.8]))"],
                    "p": [f"np.sum({name}) * {weight}"],
                    "l": [f"{weight} * sum({name})"],
                    "t": [f"{name}[0] * {weight} + np.sum({name}[1])"],
                    "d": [f'{name}["a"] * {weight} + np.sum({name}["b"])'],
                    "f": [f"{name}({weight})"],
                }.get(kind, [])
        if self.has("f") and self.chance(20):
            parts.append(f"{self.pick('f')}(0.4)")
        self.line(f"return {' + '.join(parts) if parts else self.s(2)}")
