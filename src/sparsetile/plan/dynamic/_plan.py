"""What the dynamic planner decides, knowing shape, density bound and block alone."""

from dataclasses import dataclass, field
from pathlib import Path

from sparsetile.machine import MachineSpec
from sparsetile.matrix import Pattern
from sparsetile.plan._cost import Cost

# Share of a tile's memory that programs take; with none, partitions would be chosen for which the
# published figures are too slow.
PROGRAMS = 0.05


@dataclass(frozen=True, kw_only=True)
class DynamicOptions:
    """What a user may ask of the dynamic planner and partitioner.

    Attributes:
        memory: Share of a tile's memory that temporary data may take.
        oversize: How much larger buckets are than an even spread of the non-zeros needs.
        partials: Dtype of partial sums, `"float32"` or `"float16"`.
        shared_buckets: Whether the gradient of the input reads the forward product's buckets.
        grad_a: Whether the gradient of the input is planned too.
        grad_w: Whether the gradient of the weight at the pattern is planned too.
        optimise_for_speed: Whether spilled non-zeros go to the nearest bucket in the direction in
            which buckets travel, rather than to the emptiest.
        force_spills: Whether everything is spilled as far as possible; for tests.
        x: Row partitions, if not to be searched.
        y: Column partitions, if not to be searched.
        z: Batch partitions, if not to be searched.
        exchange_buckets: Whether buckets rather than inputs travel in the gradient of the weight,
            if not to be chosen by the planner.

    Examples:
        >>> DynamicOptions(grad_w=True, oversize=0.1).partials
        'float32'
    """

    memory: float = 0.6
    oversize: float = 0.3
    partials: str = "float32"
    shared_buckets: bool = True
    grad_a: bool = True
    grad_w: bool = False
    optimise_for_speed: bool = True
    force_spills: bool = False
    x: int | None = None
    y: int | None = None
    z: int | None = None
    exchange_buckets: bool | None = None


@dataclass(frozen=True)
class DynamicPlan:
    """How products with any pattern of a shape and density are cut over tiles (PopSparse, dynamic).

    Rows of W are cut into `x` equal parts, columns into `y`, columns of the dense operand into `z`
    (the last part of each may be short or empty). Tile `(iy·z + iz)·x + ix` has the part
    (ix, iy, iz), one bucket of non-zeros and one of meta-information.

    Attributes:
        machine: The machine.
        m: Rows of W, X of the layer.
        k: Columns of W, Y of the layer.
        n: Columns of the dense operand, Z of the layer.
        blocksize: Rows and columns of a block, as given.
        kernel_block: Rows and columns of the blocks that are encoded and multiplied.
        max_blocks: Most blocks (of `kernel_block`) that a pattern may store.
        dtype: `"float16"` or `"float32"`, of operands and results.
        options: What was asked for.
        x: Row partitions.
        y: Column partitions.
        z: Batch partitions.
        x_size: Rows of a partition, a multiple of the kernel block's rows.
        y_size: Columns of a partition, a multiple of the kernel block's columns.
        z_size: Batch columns of a partition.
        methods: What computes forward, gradient of the input, gradient of the weight: "Forward",
            "Transpose" or "GradA", "GradW" for elements; "ForwardAMPBlock", "TransposeAMPBlock",
            "GradWBlock" or "GradWAMPBlock" for blocks.
        exchange_buckets: Whether buckets travel in the gradient of the weight, not inputs.
        bucket_values: Numbers that a bucket holds, a multiple of the kernel block's area.
        bucket_meta: 16-bit entries of meta-information that a bucket holds.
        bucket_meta_grad_a: The same for the gradient of the input; 0 where it is shared.
        costs: What the planner expects of each planned pass, by "fwd", "grad_a", "grad_w".

    Examples:
        >>> from sparsetile.plan import plan_dynamic
        >>> plan = plan_dynamic(512, 512, 64, density=1 / 8, blocksize=16)
        >>> plan.tiles <= plan.machine.tiles, plan.kernel_block
        (True, (16, 16))
    """

    machine: MachineSpec
    m: int
    k: int
    n: int
    blocksize: tuple[int, int]
    kernel_block: tuple[int, int]
    max_blocks: int
    dtype: str
    options: DynamicOptions
    x: int
    y: int
    z: int
    x_size: int
    y_size: int
    z_size: int
    methods: tuple[str, str, str]
    exchange_buckets: bool
    bucket_values: int
    bucket_meta: int
    bucket_meta_grad_a: int
    costs: tuple[tuple[str, Cost], ...] = field(default=())

    def __str__(self) -> str:
        from sparsetile.plan._table import dynamic_text

        return dynamic_text(self)

    @property
    def tiles(self) -> int:
        """Tiles that have a part, and a bucket."""
        return self.x * self.y * self.z

    def tile(self, ix: int, iy: int, iz: int) -> int:
        """The tile of a part: columns of W outermost, then batch, then rows."""
        return (iy * self.z + iz) * self.x + ix

    @property
    def memory_limit(self) -> float:
        """Bytes of a tile that temporary data may take: the share asked for, less programs."""
        return (self.options.memory - PROGRAMS) * self.machine.memory_per_tile

    def cost(self, pass_: str) -> Cost:
        """What the planner expects of one pass.

        Args:
            pass_: `"fwd"`, `"grad_a"` or `"grad_w"`.

        Returns:
            The phases.

        Raises:
            ValueError: If the pass is not planned.
        """
        for name, cost in self.costs:
            if name == pass_:
                return cost
        planned = ", ".join(repr(name) for name, _ in self.costs) or "none"
        raise ValueError(f"pass {pass_!r} is not planned; planned are {planned}")

    def draw(self, path: str | Path, pattern: Pattern | None = None) -> None:
        """Write a picture: the parts of the matrix, and what each phase costs.

        Args:
            path: A file that ends in `.svg`, `.png` or `.pdf`.
            pattern: A pattern of the plan's shape and blocks, to show how it fills the parts.

        Raises:
            ValueError: If it ends otherwise, or the pattern is not one that was planned for.
            ImportError: If matplotlib is missing; `pip install 'sparsetile[plot]'` brings it.
        """
        from sparsetile.plan._picture import draw_plan

        draw_plan(self, path, pattern)
