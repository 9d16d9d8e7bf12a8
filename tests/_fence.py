"""Arrays of NumPy that end where a page begins that nobody may read or write, on Linux with x86-64.

Whatever machine code touches behind an array, or in one that is freed, ends the process: operands,
results, the words of rows.  It stands in NumPy's own table of functions, like `_allocator`.  It is
machine code, because arrays are freed where nothing of Python may run.
"""

import ctypes

import llvmlite.binding as llvm

from tests._allocator import default_handler

_TEXT = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare ptr @memcpy(ptr, ptr, i64)

; Before an array stand a mark, and where its memory and the page behind it begin.

define ptr @malloc_(ptr %context, i64 %asked) {
  %none = icmp eq i64 %asked, 0
  %size = select i1 %none, i64 1, i64 %asked
  %room = add i64 %size, 4119
  %before = and i64 %room, -4096
  %total = add i64 %before, 4096
  %begin = call ptr @mmap(ptr null, i64 %total, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq ptr %begin, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %nothing, label %made
nothing:
  ret ptr null
made:
  %page = getelementptr i8, ptr %begin, i64 %before
  %ignored = call i32 @mprotect(ptr %page, i64 4096, i32 0)
  %back = sub i64 0, %size
  %found = getelementptr i8, ptr %page, i64 %back
  %mark.at = getelementptr i8, ptr %found, i64 -24
  %begin.at = getelementptr i8, ptr %found, i64 -16
  %page.at = getelementptr i8, ptr %found, i64 -8
  store i64 MARK, ptr %mark.at, align 1
  store ptr %begin, ptr %begin.at, align 1
  store ptr %page, ptr %page.at, align 1
  ret ptr %found
}

define ptr @calloc_(ptr %context, i64 %count, i64 %each) {
  %size = mul i64 %count, %each
  %found = call ptr @malloc_(ptr %context, i64 %size)
  ret ptr %found
}

define i1 @is_here(ptr %array) {
  %null = icmp eq ptr %array, null
  br i1 %null, label %no, label %look
look:
  %mark.at = getelementptr i8, ptr %array, i64 -24
  %mark = load i64, ptr %mark.at, align 1
  %is.here = icmp eq i64 %mark, MARK
  ret i1 %is.here
no:
  ret i1 0
}

define void @free_(ptr %context, ptr %array, i64 %size) {
  %is.here = call i1 @is_here(ptr %array)
  br i1 %is.here, label %here, label %elsewhere
here:
  %begin.at = getelementptr i8, ptr %array, i64 -16
  %begin = load ptr, ptr %begin.at, align 1
  %page.at = getelementptr i8, ptr %array, i64 -8
  %page = load i64, ptr %page.at, align 1
  %end = add i64 %page, 4096
  %first = ptrtoint ptr %begin to i64
  %total = sub i64 %end, %first
  %ignored = call i32 @munmap(ptr %begin, i64 %total)
  ret void
elsewhere:
  call void inttoptr (i64 FREE to ptr)(ptr %context, ptr %array, i64 %size)
  ret void
}

define ptr @realloc_(ptr %context, ptr %array, i64 %size) {
  %is.here = call i1 @is_here(ptr %array)
  br i1 %is.here, label %here, label %elsewhere
elsewhere:
  %other = call ptr inttoptr (i64 REALLOC to ptr)(ptr %context, ptr %array, i64 %size)
  ret ptr %other
here:
  %made = call ptr @malloc_(ptr %context, i64 %size)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %done, label %copy
copy:
  %page.at = getelementptr i8, ptr %array, i64 -8
  %page = load i64, ptr %page.at, align 1
  %begin = ptrtoint ptr %array to i64
  %old = sub i64 %page, %begin
  %fewer = icmp ult i64 %old, %size
  %count = select i1 %fewer, i64 %old, i64 %size
  %copied = call ptr @memcpy(ptr %made, ptr %array, i64 %count)
  call void @free_(ptr %context, ptr %array, i64 %old)
  br label %done
done:
  ret ptr %made
}
"""
_MARK = 6857432198765123457


def put():
    """Have NumPy take the memory of its arrays from here, until the process ends."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    handler = default_handler()
    text = _TEXT.replace("MARK", str(_MARK))
    for name in ("free", "realloc"):
        text = text.replace(name.upper(), str(getattr(handler, name)))
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # arrays outlive all modules
    for name in ("malloc", "calloc", "realloc", "free"):
        setattr(handler, name, engine.get_function_address(f"{name}_"))
