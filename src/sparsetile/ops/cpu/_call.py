"""How a kernel is called: one pointer to an array of 64-bit fields, read by name on both sides."""

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

from sparsetile.ops.cpu._emit import Function, Value

Call: TypeAlias = "ctypes.Array[ctypes.c_int64]"

# Counters that the threads of one call share; a worker sees their addresses.
_COUNTERS = ("task", "ticket")


class Layout:
    """The fields of one kernel's argument array, in order.

    Args:
        integers: Names of the integer fields, separated by spaces.
        pointers: Names of the fields that hold addresses.
    """

    def __init__(self, integers: str, pointers: str) -> None:
        self._pointers = frozenset(pointers.split())
        self._slot = {
            name: slot
            for slot, name in enumerate([*_COUNTERS, *integers.split(), *pointers.split()])
        }

    def function(
        self, name: str, own: Sequence[tuple[str, str]] = ()
    ) -> tuple[Function, dict[str, Value]]:
        """Start a function that takes the array, with every field loaded under its name.

        With arguments of its ``own`` besides the array, it is internal to the module.
        """
        f = Function(name, [("call", "ptr"), *own], internal=bool(own))
        values = {}
        for field, slot in self._slot.items():
            address = f.at(f.args[0], 8 * slot)
            type_ = "ptr" if field in self._pointers else "i64"
            values[field] = address if field in _COUNTERS else f.load(type_, address, align=8)
        return f, values

    def new(self, **fields: int) -> Call:
        """Make an array for one call."""
        call = (ctypes.c_int64 * len(self._slot))()
        self.fill(call, **fields)
        return call

    def copy(self, call: Call, **fields: int) -> Call:
        """Copy an array, so that calls on other threads do not meet, and set fields of the copy."""
        copied = type(call).from_buffer_copy(call)
        self.fill(copied, **fields)
        return copied

    def fill(self, call: Call, **fields: int) -> None:
        """Set fields and rewind the counters, ready for a run."""
        call[0] = call[1] = 0
        slot = self._slot
        for name, value in fields.items():
            call[slot[name]] = value

    def read(self, call: Call) -> dict[str, int]:
        """Return the integer fields of an array, but for the counters."""
        hidden = self._pointers.union(_COUNTERS)
        return {name: call[slot] for name, slot in self._slot.items() if name not in hidden}

    def slots(self, *names: str) -> tuple[int, ...]:
        """Find where fields lie, for code that sets them at every call."""
        return tuple(self._slot[name] for name in names)
