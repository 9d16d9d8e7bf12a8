"""LLVM text of the interpreter of tables, and of loops that NumPy does not have; see `native`.

`text` fills in the positions of words in a row, a block and a spec, which `native` defines.
"""

from actorgraph.devices.listed import CASTS

_BLOCK = "*specs count *rows end type *clear *test mask.long computing dead.offset none"
_SPEC = "want.descr want want.flags low step"
_ROW = "*loop *data.of *dims *steps times outer"
"""The first words of a block, a spec and a row, in order; a star marks pointers."""

_ARRAY = ("descr", "i64"), ("flags", "i32"), ("data", "i64"), ("nd", "i32"), ("dimensions", "ptr")
"""Fields of an array object."""

ELEMENTS = """\
  br label %sizes
sizes:
  %d = phi i32 [0, %known], [%d.next, %size]
  %elements = phi i64 [1, %known], [%elements.next, %size]
  %sizes.end = icmp eq i32 %d, %nd
  br i1 %sizes.end, label %judge, label %size
size:
  %dimension.at = getelementptr i64, ptr %dimensions, i32 %d
  %dimension = load i64, ptr %dimension.at
  %elements.next = mul i64 %elements, %dimension
  %d.next = add i32 %d, 1
  br label %sizes
judge:"""
"""Counts the elements of an array, from block ``known`` to block ``judge``."""

_TEXT = """
define void @copy(ptr %args, ptr %dims, ptr %steps, ptr %data) {{
  %from = load ptr, ptr %args
  %into.at = getelementptr ptr, ptr %args, i64 1
  %into = load ptr, ptr %into.at
  %size = load i64, ptr %dims
  call void @llvm.memcpy.p0.p0.i64(ptr %into, ptr %from, i64 %size, i1 false)
  ret void
}}

define i64 @rows(ptr %block, ptr %run, i64 %begin, i64 %until, i64 %limit, i64 %raised.begin) {{
entry:
  %args = alloca [{args} x ptr]
{words}
  %mask = trunc i64 %mask.long to i32
  %dead.at = getelementptr i8, ptr %run, i64 %dead.offset
  %bases = getelementptr i64, ptr %block, i64 {first_base}
  %args.bases = getelementptr ptr, ptr %args, i64 {bases}
  store ptr %bases, ptr %args.bases
  %raised.first = trunc i64 %raised.begin to i32
  br label %walking
walking:
  %r = phi i64 [%begin, %entry], [%r.next, %next]
  %raised = phi i32 [%raised.first, %entry], [%raised.next, %next]
  %rows.end = icmp sge i64 %r, %until
  br i1 %rows.end, label %over, label %alive
alive:
  %dead = load volatile i64, ptr %dead.at
  %lives = icmp eq i64 %dead, %none
  br i1 %lives, label %computed, label %died
died:
  ret i64 {dead}
computed:
  %failed = icmp ne i32 %raised, 0
  %copies = icmp sge i64 %r, %limit
  %gives.up = and i1 %failed, %copies
  br i1 %gives.up, label %gave.up, label %row
row:
  %row.words = mul i64 %r, {row_words}
  %at = getelementptr i64, ptr %rows, i64 %row.words
{row}
{fetch}
  br label %plane
plane:
  %u = phi i64 [0, %row], [%u.next, %plane.end]
{shift}
  br label %again
again:
  %o = phi i64 [0, %plane], [%o.next, %again]
{place}
  call void %loop(ptr %args, ptr %dims, ptr %steps, ptr %data.of)
  %o.next = add i64 %o, 1
  %more = icmp slt i64 %o.next, %outer
  br i1 %more, label %again, label %plane.end
plane.end:
  %u.next = add i64 %u, 1
  %more.planes = icmp slt i64 %u.next, %times
  br i1 %more.planes, label %plane, label %done
done:
  %heard.at = getelementptr i64, ptr %at, i64 {heard}
  %heard.long = load i64, ptr %heard.at
  %later = icmp eq i64 %heard.long, {later}
  br i1 %later, label %next, label %looks
looks:
  %may.refuse = icmp eq i64 %heard.long, {refuses}
  br i1 %may.refuse, label %refusal, label %listen
refusal:
  %first.argument = load ptr, ptr %args
  %refused = icmp eq ptr %first.argument, null
  br i1 %refused, label %declined, label %listen
listen:
  %heard = trunc i64 %heard.long to i32
  %new = call i32 %test(i32 %mask)
  %quiet = icmp eq i32 %new, 0
  br i1 %quiet, label %next, label %note
note:
  %bad = and i32 %new, %heard
  %wiped = call i32 %clear(i32 %mask)
  br label %next
next:
  %more.raised = phi i32 [0, %done], [0, %listen], [%bad, %note]
  %raised.next = or i32 %raised, %more.raised
  %r.next = add i64 %r, 1
  br label %walking
declined:
  ret i64 {declined}
over:
  %result = zext i32 %raised to i64
  ret i64 %result
gave.up:
  %flags = zext i32 %raised to i64
  %both = or i64 %flags, {gave_up}
  ret i64 %both
}}

define i64 @laps(ptr %block, ptr %run, i64 %begin, i64 %end, i64 %limit, i64 %raised.begin) {{
entry:
{laps_of_block}
  %own = alloca i64, i64 %size
  %bytes = mul i64 %size, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %block, i64 %bytes, i1 false)
  br label %lap
lap:
  %t = phi i64 [0, %entry], [%t.next, %moving]
  %raised = phi i64 [%raised.begin, %entry], [%walked, %moving]
  %walked = call i64 @rows(
    ptr %own, ptr %run, i64 %begin, i64 %end, i64 %limit, i64 %raised)
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %laps
  %well = icmp sge i64 %walked, 0
  %on = and i1 %more, %well
  br i1 %on, label %moving, label %over
moving:
  call void @move.on(ptr %own)
  br label %lap
over:
  ret i64 %walked
}}

define i64 @walk(ptr %tuple, ptr %block, ptr %run) {{
entry:
{block}
  %mask = trunc i64 %mask.long to i32
  store i64 0, ptr %heedless.at
  store volatile i8 1, ptr %bell
  %heeds = icmp eq i64 %heedless, 0
  %bases = getelementptr i64, ptr %block, i64 {first_base}
  %items = getelementptr i8, ptr %tuple, i64 {items}
  br label %arrays
arrays:
  %i = phi i64 [0, %entry], [%i.next, %accept]
  %arrays.end = icmp eq i64 %i, %count
  br i1 %arrays.end, label %begin, label %look
look:
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.at
  %spec.words = mul i64 %i, {spec_words}
  %spec = getelementptr i64, ptr %specs, i64 %spec.words
  %item.type.at = getelementptr i8, ptr %item, i64 8
  %item.type = load i64, ptr %item.type.at
  %is.array = icmp eq i64 %item.type, %type
  br i1 %is.array, label %known, label %decline
known:
{item}
{spec}
  %same.descr = icmp eq i64 %descr, %want.descr
  %flags.long = sext i32 %flags to i64
  %flags.both = and i64 %flags.long, %want.flags
  %same.flags = icmp eq i64 %flags.both, %want.flags
  %odd = and i64 %data, %low
  %even = icmp eq i64 %odd, 0
{elements}
  %same.elements = icmp eq i64 %elements, %want
  %ok.1 = and i1 %same.descr, %same.flags
  %ok.2 = and i1 %even, %same.elements
  %ok = and i1 %ok.1, %ok.2
  br i1 %ok, label %accept, label %decline
accept:
  %base.at = getelementptr i64, ptr %bases, i64 %i
  %shift = mul i64 %first, %step
  %base = add i64 %data, %shift
  store i64 %base, ptr %base.at
  %i.next = add i64 %i, 1
  br label %arrays
decline:
  ret i64 {declined}
begin:
  %cleared = call i32 %clear(i32 %mask)
  br label %iteration
iteration:
  %t = phi i64 [0, %begin], [%t.next, %moving]
  %raised.before = phi i64 [0, %begin], [%raised, %moving]
  %in.turn = icmp eq ptr %strands, null
  br i1 %in.turn, label %walking, label %beside
beside:
  %work = load ptr, ptr %strands
  %computed = call i64 %work(ptr %strands, ptr %block, ptr %run)
  %failed = icmp slt i64 %computed, 0
  br i1 %failed, label %ended, label %walking
ended:
  ret i64 %computed
walking:
  %first.row = phi i64 [0, %iteration], [%computing, %beside]
  %raised.so.far = phi i64 [%raised.before, %iteration], [%computed, %beside]
  %limit = select i1 %heeds, i64 %computing, i64 %end
  %walked = call i64 @rows(
    ptr %block, ptr %run, i64 %first.row, i64 %end, i64 %limit, i64 %raised.so.far)
  %nothing = icmp slt i64 %walked, 0
  br i1 %nothing, label %stopped, label %told.of
stopped:
  ret i64 %walked
told.of:
  %raised = and i64 %walked, {mask}
  %gave.up = icmp ne i64 %walked, %raised
  br i1 %gave.up, label %over, label %turn
turn:
  %t.next = add i64 %t, 1
  store i64 %t.next, ptr %made.at
  %byte = load i8, ptr %flag
  %wanted = icmp ne i8 %byte, 0
  %due = icmp slt i64 %t.next, %trips
  %on = and i1 %wanted, %due
  br i1 %on, label %moving, label %over
moving:
  call void @move.on(ptr %block)
  br label %iteration
over:
  %told = select i1 %heeds, i64 %raised, i64 0
  ret i64 %told
}}
"""

_FETCH = """
{words}
  %a{k}.at = getelementptr i64, ptr %bases, i64 %b{k}
  %a{k} = load i64, ptr %a{k}.at
  %p{k} = add i64 %a{k}, %o{k}"""

_SHIFT = """
  %n{k} = mul i64 %u, %s{k}
  %r{k} = add i64 %p{k}, %n{k}"""

_PLACE = """
  %m{k} = mul i64 %o, %t{k}
  %q{k} = add i64 %r{k}, %m{k}
  %args{k} = getelementptr i64, ptr %args, i64 {k}
  store i64 %q{k}, ptr %args{k}"""

_MOVE = """\
  %d1 = mul i64 %i, %step1
  %index.at = getelementptr i8, ptr %arg1, i64 %d1
  %index = load i64, ptr %index.at
  %below = icmp slt i64 %index, 0
  %from.end = add i64 %index, %dim1
  %j = select i1 %below, i64 %from.end, i64 %index
  %there = icmp ult i64 %j, %dim1
  br i1 %there, label %move, label %refuse
refuse:
  store ptr null, ptr %args
  ret void
move:
  %d0 = mul i64 %i, %step0
  %j0 = mul i64 %j, %step3
  %both0 = add i64 %d0, %j0
  %from = getelementptr i8, ptr %arg0, i64 %both0
  %d2 = mul i64 %i, %step2
  %j2 = mul i64 %j, %step4
  %both2 = add i64 %d2, %j2
  %into = getelementptr i8, ptr %arg2, i64 %both2
{act}"""
"""Copies or adds entries by their indices; an index out of range makes the walk decline.

Dims: number of indices, valid entries, bytes of an entry.  Steps: strides of source, indices and
target, then the distance of entries in source and target."""

_COPY = "  call void @llvm.memcpy.p0.p0.i64(ptr %into, ptr %from, i64 %dim2, i1 false)"
_ADD = """  br label %each
each:
  %k = phi i64 [0, %move], [%k.next, %each]
  %old.at = getelementptr i8, ptr %into, i64 %k
  %more.at = getelementptr i8, ptr %from, i64 %k
  %old = load {kind}, ptr %old.at
  %more = load {kind}, ptr %more.at
  %sum = {add} {kind} %old, %more
  store {kind} %sum, ptr %old.at
  %k.next = add i64 %k, {size}
  %is.last = icmp eq i64 %k.next, %dim2
  br i1 %is.last, label %added, label %each
added:"""

_GROUP_ARRAY = """\
  %twice = shl i64 %i, 1
  %base.place = add i64 %twice, 3
  %shift.place = add i64 %twice, 4
  %base.word = getelementptr i64, ptr %dims, i64 %base.place
  %shift.word = getelementptr i64, ptr %dims, i64 %shift.place
  %base.number = load i64, ptr %base.word
  %shift = load i64, ptr %shift.word
  %base.at = getelementptr ptr, ptr %bases, i64 %base.number
  %base = load ptr, ptr %base.at
  %array = getelementptr i8, ptr %base, i64 %shift
  %into = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %into"""
"""Finds an array of a fusion group."""

_GROUP = """\
  %done = call i1 %data(ptr %arrays, i64 %rows, i64 %cols)
  br i1 %done, label %well, label %refuse
refuse:
  store ptr null, ptr %args
  br label %well
well:
  %block = getelementptr i64, ptr %bases, i64 -{first_base}
{clear}
  %cleared = call i32 %clear(i32 {mask})
  ret void"""
"""A compiled fusion group.  Dims: number of arrays, rows, columns; then base and offset of each.
It raises no floating-point flag, and makes the walk decline where it has not computed all."""

_MOVE_ON = """\
  %spec.words = mul i64 %i, {spec_words}
  %spec = getelementptr i64, ptr %specs, i64 %spec.words
  %by.at = getelementptr i64, ptr %spec, i64 4
  %by = load i64, ptr %by.at
  %old.at = getelementptr i64, ptr %bases, i64 %i
  %old = load i64, ptr %old.at
  %new.base = add i64 %old, %by
  store i64 %new.base, ptr %old.at"""
"""Advances the base of each array to the next iteration."""

_REFUSE = """
define void @refuse(ptr %args, ptr %dims, ptr %steps, ptr %data) {
  %arg0 = load ptr, ptr %args
  %byte = load i8, ptr %arg0
  %good = icmp eq i8 %byte, 0
  %kept = select i1 %good, ptr %arg0, ptr null
  store ptr %kept, ptr %args
  ret void
}
"""
_REBASE = """
define void @rebase(ptr %args, ptr %dims, ptr %steps, ptr %data) {{
entry:
{loads}
  %shown.at = getelementptr i64, ptr %bases, i64 %from
  %from.base = load i64, ptr %shown.at
  %own.at = getelementptr i64, ptr %bases, i64 %into
  store i64 %from.base, ptr %own.at
  ret void
}}
"""
"""Sets a base to the address that another one has."""

_LOOP = """
define void @{head} {{
entry:
{loads}
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %acted]
  %end = icmp eq i64 %i, {count}
  br i1 %end, label %over, label %act
act:
{act}
  br label %acted
acted:
  %i.next = add i64 %i, 1
  br label %next
over:
{after}
}}
"""
_AT = """\
  %d{k} = mul i64 %i, %step{k}
  %at{k} = getelementptr i8, ptr %arg{k}, i64 %d{k}
"""

_CAST = """  %x = load {x}, ptr %at0
  %y = {op} {x} %x to {y}
  store {y} %y, ptr %at1"""

_SELECT = """  %flag = load i8, ptr %at0
  %x = load {kind}, ptr %at1
  %y = load {kind}, ptr %at2
  %no = icmp eq i8 %flag, 0
  %chosen = select i1 %no, {kind} %y, {kind} %x
  store {kind} %chosen, ptr %at3"""

_OF_NUMPY = "(ptr %args, ptr %dims, ptr %steps, ptr %data)"
"""The parameters of NumPy's inner loops."""

KINDS = {
    "?": "i8", "b": "i8", "B": "i8", "h": "i16", "H": "i16", "i": "i32", "I": "i32", "l": "i64",
    "L": "i64", "f": "float", "d": "double",
}  # fmt: skip


def loaded(base: str, names: str, first: int = 0) -> str:
    """Return lines that load consecutive words of a base; a ``*`` marks pointers."""
    found = []
    for place, name in enumerate(names.split(), first):
        kind, key = ("ptr", name[1:]) if name.startswith("*") else ("i64", name)
        found.append(field(base, key, place, kind))
    return "\n".join(found)


def field(base: str, key: str, place: int, kind: str = "i64", step: str = "i64") -> str:
    """Return lines that load the word at a place after a base, counted in units of `step`."""
    return (f"  %{key}.at = getelementptr {step}, ptr %{base}, i64 {place}\n"
            f"  %{key} = load {kind}, ptr %{key}.at")  # fmt: skip


def _loads(arguments: int, dims: int, steps: int) -> str:
    counts = (("arg", "*", arguments), ("dim", "", dims), ("step", "", steps))
    return "\n".join([
        loaded(f"{name}s", " ".join([f"{star}{name}{k}" for k in range(count)]))
        for name, star, count in counts
    ])  # fmt: skip


def _loop(head: str, loads: str, count: str, act: str, after: str = "  ret void") -> str:
    """Return a function that does `act` for each ``%i`` below a count, and then `after`."""
    return _LOOP.format(head=head, loads=loads, count=count, act=act, after=after)


def _each(name: str, arguments: int, act: str) -> str:
    """Return a loop over elements of that many arguments, with the body `act`."""
    places = "".join([_AT.format(k=k) for k in range(arguments)])
    return _loop(f"{name}{_OF_NUMPY}", _loads(arguments, 1, arguments), "%dim0", places + act)


def _routines() -> str:
    """Return the loops that NumPy does not have."""
    acts = {"move": _COPY}
    for char, size, add in (("f", 4, "fadd"), ("d", 8, "fadd"), ("i", 4, "add"), ("l", 8, "add")):
        acts[f"add_{char}"] = _ADD.format(kind=KINDS[char], size=size, add=add)
    loads, found = _loads(3, 3, 5), [_REFUSE]
    for name, act in acts.items():
        found.append(_loop(f"{name}{_OF_NUMPY}", loads, "%dim0", _MOVE.format(act=act)))
    for pair, op in CASTS.items():
        x, y = pair[0], pair[1]
        found.append(_each(f'"cast_{pair}"', 2, _CAST.format(x=KINDS[x], y=KINDS[y], op=op)))
    found += [_each(f"select_{n}", 4, _SELECT.format(kind=f"i{8 * n}")) for n in (1, 4, 8)]
    return "".join(found)


def text(arguments: int, **words: int) -> str:
    """Return the text of the interpreter, for rows of that many arguments."""
    each = [
        {"k": k, "words": loaded("at", f"b{k} o{k} s{k} t{k}", 6 + 4 * k)} for k in range(arguments)
    ]
    words_of_block = loaded("block", _BLOCK)
    block = [words_of_block]
    block += [field("block", key, words[key], "ptr") for key in ("flag", "bell", "strands")]
    block += [field("block", key, words[key]) for key in ("heedless", "first", "trips", "made")]
    item = [field("item", key, words[key], kind, "i8") for key, kind in _ARRAY]
    bases = field("args", "bases", arguments, "ptr", "ptr")
    loads = [bases, loaded("dims", "count rows cols"), "  %arrays = alloca ptr, i64 %count"]
    after = _GROUP.format(clear=field("block", "clear", 5, "ptr"), **words)
    group = _loop(f"group{_OF_NUMPY}", "\n".join(loads), "%count", _GROUP_ARRAY, after)
    rebase = _REBASE.format(loads=f"{bases}\n{loaded('dims', 'into from')}")
    own = f"  %bases = getelementptr i64, ptr %block, i64 {words['first_base']}"
    specs = f"{loaded('block', '*specs count')}\n{own}"
    moving = _loop("move.on(ptr %block)", specs, "%count", _MOVE_ON.format(**words))
    walk = _TEXT.format(
        laps_of_block="\n".join([field("block", key, words[key]) for key in ("laps", "size")]),
        words=words_of_block, block="\n".join(block), item="\n".join(item),
        spec=loaded("spec", _SPEC), elements=ELEMENTS, row=loaded("at", _ROW),
        fetch="".join([_FETCH.format(**one) for one in each]),
        shift="".join([_SHIFT.format(**one) for one in each]),
        place="".join([_PLACE.format(**one) for one in each]),
        args=arguments + 1, bases=arguments, **words,
    )  # fmt: skip
    return "".join([_routines(), group, rebase, moving, walk])
