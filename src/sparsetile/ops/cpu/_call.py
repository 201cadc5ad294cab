"""How a kernel is called: one pointer to an array of 64-bit fields, read by name on both sides."""

import ctypes
from collections.abc import Sequence

from sparsetile.ops.cpu._emit import Function, Value

# Fields every kernel has. The first two are counters shared by the threads of one call.
COUNTERS = ("task", "ticket")
_POINTERS = frozenset(
    [
        "x",
        "d",
        "y",
        "panels",
        "stages",
        "crow",
        "col",
        "position",
        "values",
        "bias",
        "bounds",
        "segments",
    ]
    + ["lengths", "rows", "index", "chunks"]
)


class Layout:
    """The fields of one kernel's argument array, in order."""

    def __init__(self, *fields: str):
        self.fields = COUNTERS + fields
        self._slot = {name: slot for slot, name in enumerate(self.fields)}

    def function(self, name: str) -> tuple[Function, dict[str, Value]]:
        """Start a function that takes the array, with every field loaded under its name.

        The counters stay addresses, since threads share them.
        """
        f = Function(name, [("call", "ptr")])
        values = {}
        for field, slot in self._slot.items():
            address = f.at(f.args[0], 8 * slot)
            if field in COUNTERS:
                values[field] = address
            else:
                values[field] = f.load("ptr" if field in _POINTERS else "i64", address, align=8)
        return f, values

    def pack(self, **fields: int) -> "ctypes.Array[ctypes.c_int64]":
        """Fill an array for one call; every field must be given."""
        array = (ctypes.c_int64 * len(self.fields))()
        for name in self.fields[len(COUNTERS) :]:
            array[self._slot[name]] = fields.pop(name)
        if fields:
            raise TypeError(f"no such fields: {sorted(fields)}")
        return array

    def rewind(self, array: "ctypes.Array[ctypes.c_int64]", **fields: int) -> None:
        """Reset the counters for another pass over the same array, changing some fields."""
        array[0] = array[1] = 0
        for name, value in fields.items():
            array[self._slot[name]] = value


def field_names(layouts: Sequence[Layout]) -> set[str]:
    """Collect the field names of several layouts."""
    return {name for layout in layouts for name in layout.fields}
