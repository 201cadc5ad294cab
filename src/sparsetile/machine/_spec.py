"""What a tile machine is made of: how many tiles, and what each can store, move and compute."""

import json
import math
from dataclasses import dataclass, fields

_FORMATS = ("float16", "float16/float32", "float32")
_MAY_BE_ZERO = ("sync_cycles", "exchange_cycles")


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """A bulk-synchronous machine: tiles with memory of their own, joined by an exchange.

    A tile computes on what lies in its own memory; between two computations all tiles exchange
    data at once. Figures are per tile and per cycle, so that they hold at every clock rate.

    Args:
        name: What the machine is called.
        tiles: Number of tiles.
        memory_per_tile: Bytes of memory of one tile.
        clock_hz: Cycles per second.
        exchange_bytes_per_cycle: Bytes one tile can receive from the exchange in a cycle.
        memory_bytes_per_cycle: Bytes one tile can read from its own memory in a cycle.
        flops_float16: Operations per cycle and tile, float16 inputs, float16 sums. A
            multiplication and an addition are two operations.
        flops_mixed: The same with float16 inputs and float32 sums.
        flops_float32: The same with float32 inputs and float32 sums.
        workers: Hardware threads of a tile, which take turns.
        tiles_per_bus: Neighbouring tiles that share one exchange bus. When all of them receive the
            same data, each receives at that many times the rate.
        sync_cycles: Cycles that all tiles wait for each other before a superstep.
        exchange_cycles: Cycles that an exchange takes beside moving bytes, such as its latency.
        exchange_atom: Bytes that the exchange moves at least; runs are rounded up to whole atoms.

    Raises:
        ValueError: If a figure is not positive or a count is not a whole number.

    Examples:
        >>> small = MachineSpec(
        ...     name="small", tiles=4, memory_per_tile=1024, clock_hz=1e9,
        ...     exchange_bytes_per_cycle=4, memory_bytes_per_cycle=16,
        ...     flops_float16=64, flops_mixed=32, flops_float32=16,
        ... )
        >>> small.memory
        4096
        >>> small.peak("float32")
        64000000000.0
    """

    name: str
    tiles: int
    memory_per_tile: int
    clock_hz: float
    exchange_bytes_per_cycle: int
    memory_bytes_per_cycle: int
    flops_float16: int
    flops_mixed: int
    flops_float32: int
    workers: int = 1
    tiles_per_bus: int = 1
    sync_cycles: int = 0
    exchange_cycles: int = 0
    exchange_atom: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(
                f"name of a machine is {self.name!r}; it is what messages call it: "
                f"give a text that is not blank"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if field.type is int and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(
                    f"{field.name} of machine {self.name!r} is {value!r}; "
                    f"it counts things: give an int of {least} or more"
                )
            if field.type is float and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise ValueError(
                    f"{field.name} of machine {self.name!r} is {value!r}; it measures something: "
                    f"give a float above {least}"
                )
            if field.type is not str and not (0 < value < math.inf or value == least == 0):
                raise ValueError(
                    f"{field.name} of machine {self.name!r} is {value!r}; it must be "
                    f"{'0 or more' if least == 0 else 'positive'} and finite: "
                    f"give what one machine has"
                )
        if self.tiles % self.tiles_per_bus:
            raise ValueError(
                f"tiles_per_bus of machine {self.name!r} is {self.tiles_per_bus}, "
                f"with {self.tiles} tiles; give a divisor of the number of tiles"
            )

    @property
    def memory(self) -> int:
        """Bytes of memory of all tiles together."""
        return self.tiles * self.memory_per_tile

    @property
    def exchange_bandwidth(self) -> float:
        """Bytes per second that all tiles together can receive from the exchange."""
        return self.tiles * self.exchange_bytes_per_cycle * self.clock_hz

    def peak(self, dtype: str) -> float:
        """Operations per second of all tiles together.

        Args:
            dtype: `"float16"`, `"float32"`, or `"float16/float32"` for float16 inputs with
                float32 sums.

        Returns:
            The most operations a second, at which no real program runs.

        Raises:
            ValueError: If the machine has no rate for that dtype.

        Examples:
            >>> round(preset("bow-ipu").peak("float16") / 1e12)
            349
        """
        if dtype not in _FORMATS:
            raise ValueError(
                f"peak of machine {self.name!r} asked for dtype {dtype!r}; "
                f"give one of {', '.join(_FORMATS)}"
            )
        rates = (self.flops_float16, self.flops_mixed, self.flops_float32)
        return self.tiles * rates[_FORMATS.index(dtype)] * self.clock_hz

    def seconds(self, cycles: float) -> float:
        """How long a number of cycles takes.

        Args:
            cycles: Cycles of one tile; tiles run side by side.

        Returns:
            Seconds.

        Examples:
            >>> preset("bow-ipu").seconds(1_850_000)
            0.001
        """
        return cycles / self.clock_hz

    def to_toml(self) -> str:
        """A description that `machine_from_toml` reads.

        Returns:
            TOML with every figure.

        Examples:
            >>> print(preset("bow-ipu").to_toml())  # doctest: +ELLIPSIS
            name = "bow-ipu"
            tiles = 1472
            ...
        """
        # A JSON string is a TOML string, and so are JSON's numbers.
        return "".join(
            f"{field.name} = {json.dumps(getattr(self, field.name))}\n" for field in fields(self)
        )


def presets() -> tuple[str, ...]:
    """Names of the machines that come with the library.

    Returns:
        The names that `preset` takes.

    Examples:
        >>> presets()
        ('bow-ipu', 'mk2-ipu')
    """
    return tuple(_PRESETS)


def preset(name: str) -> MachineSpec:
    """A machine that comes with the library.

    The figures are those PopSparse was measured with and its planner was written for: 1,472 tiles
    of 624 KiB, a 4-byte exchange per cycle and tile, six workers, two tiles to a bus; clock and
    peak rates as in "PopSparse: Accelerated block sparse matrix multiplication on IPU"
    (arXiv 2303.16999) and the vendor's data sheets. The operations per cycle are the data sheets'
    peak rates divided by tiles and clock. A classic Mk2 runs at 1.325 to 1.35 GHz; the lower one,
    which gives its published 250 TFLOP/s, is taken. The cycles of a synchronisation are not
    published; they were fitted to the published speed-ups of static sparse products over dense.

    Args:
        name: One of `presets()`.

    Returns:
        The machine.

    Raises:
        ValueError: If there is no machine of that name.

    Examples:
        >>> preset("bow-ipu").tiles
        1472
    """
    if name not in _PRESETS:
        raise ValueError(
            f"no machine is called {name!r}; there are {', '.join(_PRESETS)}: "
            f"choose one, or describe another with MachineSpec(...)"
        )
    return _PRESETS[name]


def _ipu(name: str, clock_hz: float) -> MachineSpec:
    return MachineSpec(
        name=name,
        tiles=1472,
        memory_per_tile=624 * 1024,
        clock_hz=clock_hz,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=24,
        flops_float16=128,
        flops_mixed=64,
        flops_float32=32,
        workers=6,
        tiles_per_bus=2,
        sync_cycles=131,
    )


_PRESETS = {m.name: m for m in (_ipu("bow-ipu", 1.85e9), _ipu("mk2-ipu", 1.325e9))}
