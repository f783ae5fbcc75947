"""Words in memory by address and place. An array as an argument is counted in and out by every function that has it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_intrinsic: Any = intrinsic  # its types count the typing context as an argument


@_intrinsic
def get(typing_context, bits, place):
    """The word at a place of a room."""

    def codegen(context, builder, signature, arguments):
        start = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(start, [arguments[1]]))

    return types.uint64(types.uint64, types.int64), codegen


@_intrinsic
def put(typing_context, bits, place, value):
    """Write a word at a place of a room."""

    def codegen(context, builder, signature, arguments):
        start = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[2], builder.gep(start, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.uint64), codegen


@_intrinsic
def pointer(typing_context, bits, place):
    """Where a place of a room is, as ``carray`` takes it."""

    def codegen(context, builder, signature, arguments):
        start = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64, types.int64), codegen
