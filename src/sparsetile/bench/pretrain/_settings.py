"""What a pre-training run is asked to do: every option once, with its default and its limits."""

from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from sparsetile.bench._errors import CommandError
from sparsetile.bench._sweep import read_blocksize
from sparsetile.bench.pretrain._methods import BUDGETS, METHODS, method_of

#: Layers, width and heads of the BERT family (Turc et al., "Well-Read Students Learn Better",
#: 2019); the inner layers are four times as wide.
PRESETS = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
}
MODEL, TEXT, SPARSITY = "Model", "Text", "Sparsity"
LEARNING, MACHINE, RECORDS = "Learning", "Machine", "Records"
_FOLDER = Path("pretrain")
_SIZES = ", ".join(f"{name} {layers}×{width}" for name, (layers, width, _) in PRESETS.items())


def _option(
    default: Any,
    panel: str,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
) -> Any:
    limits = {"least": least, "most": most, "above": above, "choices": choices}
    return field(
        default=default, metadata={"panel": panel, "help": help, "metavar": metavar, **limits}
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A pre-training run.

    Each field is an option of `sparsetile train` and a key of its config file; what it means is
    in its metadata, for `--help` and for messages.

    Examples:
        >>> Settings(preset="tiny").size
        (2, 128, 2)
        >>> Settings(preset="tiny", layers=3).size
        (3, 128, 2)
    """

    preset: str = _option("mini", MODEL, f"Layers × width: {_SIZES}.", choices=tuple(PRESETS))
    objective: str = _option(
        "clm", MODEL, "clm: GPT-2, next token; mlm: BERT, masked tokens.", choices=("clm", "mlm")
    )
    layers: int | None = _option(
        None, MODEL, "Transformer blocks, instead of the preset's.", least=1
    )
    width: int | None = _option(
        None, MODEL, "Features of a token, instead of the preset's.", least=8
    )
    heads: int | None = _option(None, MODEL, "Attention heads, instead of the preset's.", least=1)
    sequence: int = _option(128, MODEL, "Tokens of a row.", least=8)
    vocabulary: int = _option(
        4096, MODEL, "Different tokens, at most; 256 of them are bytes.", least=300
    )
    dropout: float = _option(0.0, MODEL, "Share of values dropped in training.", least=0, most=0.9)

    text: tuple[Path, ...] = _option(
        (),
        TEXT,
        "Text to train on; when not given, the Python standard library's own source.",
        metavar="FILE...",
    )
    characters: int = _option(8_000_000, TEXT, "Characters to read at most.", least=20_000)

    method: str = _option(
        "dynsparse",
        SPARSITY,
        "dense: no pattern; static: it stays; the others move it as their papers say.",
        choices=METHODS,
    )
    density: float = _option(
        0.1, SPARSITY, "Share of the blocks that is stored, of all layers.", above=0, most=1
    )
    blocksize: str = _option("4", SPARSITY, "Block size, such as 4 or 16x1.")
    budget: str = _option(
        "uniform", SPARSITY, "How the density is shared among layers.", choices=BUDGETS
    )
    every: int = _option(100, SPARSITY, "Steps between updates of the pattern.", least=1)
    prune_ratio: float | None = _option(
        None, SPARSITY, "Share of the blocks that moves at first, if not the method's.", least=0,
        most=1,
    )  # fmt: skip

    steps: int = _option(2000, LEARNING, "Steps of the optimizer, AdamW.", least=1)
    batch: int = _option(16, LEARNING, "Rows of a batch.", least=1)
    accumulate: int = _option(1, LEARNING, "Batches whose gradients make one step.", least=1)
    lr: float = _option(
        4e-4, LEARNING, "Highest learning rate of the block layers in a dense model.", least=0
    )
    sparse_lr: float | None = _option(
        None, LEARNING, "That of sparse layers, instead of the rule of train.sparse_lr.", least=0
    )
    rest_lr: float = _option(
        2.5e-3, LEARNING, "That of embedding, norms and biases, which stay dense.", least=0
    )
    warmup: float = _option(
        0.05, LEARNING, "Share of the steps over which rates rise.", least=0, most=0.9
    )
    decay: str = _option(
        "cosine", LEARNING, "How rates fall then, to a twentieth.", choices=("cosine", "linear")
    )
    weight_decay: float = _option(0.01, LEARNING, "Weight decay of matrices.", least=0)
    clip: float = _option(
        1.0, LEARNING, "Longest gradient; longer ones are shortened. 0: never.", least=0
    )

    dtype: str = _option(
        "float32", MACHINE, "Of products; weights are float32.", choices=("float32", "bfloat16")
    )
    compile: bool = _option(False, MACHINE, "Run the model through torch.compile.")
    threads: int | None = _option(
        None, MACHINE, "Threads of a product; all CPUs when not given.", least=1
    )
    seed: int = _option(
        0, MACHINE, "Decides weights, patterns, and the order of the data.", least=0
    )

    output: Path = _option(_FOLDER, RECORDS, "Folder of the run.")  # noqa: RUF009
    log_every: int = _option(10, RECORDS, "Steps between rows of train.csv.", least=1)
    eval_every: int = _option(200, RECORDS, "Steps between judgements on held-out text.", least=1)
    save_every: int = _option(500, RECORDS, "Steps between checkpoints.", least=1)
    plots: bool = _option(True, RECORDS, "Draw pictures at the end.")

    @property
    def size(self) -> tuple[int, int, int]:
        """Layers, width and heads."""
        layers, width, heads = PRESETS[self.preset]
        return self.layers or layers, self.width or width, self.heads or heads

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return read_blocksize(self.blocksize)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step of the optimizer sees."""
        return self.sequence * self.batch * self.accumulate


#: Options that may differ when a run is resumed: they change nothing in the weights.
FREE = frozenset({"output", "log_every", "eval_every", "save_every", "plots", "threads"})
OPTIONS: dict[str, Field[Any]] = {option.name: option for option in fields(Settings)}


def flag(name: str) -> str:
    """The flag of an option: `--prune-ratio`."""
    return f"--{key(name)}"


def key(name: str) -> str:
    """The key of an option in a config file: `prune-ratio`."""
    return name.replace("_", "-")


def complaint(name: str, value: Any) -> str:
    """What an option must be, if this value is out of its limits; else nothing.

    Examples:
        >>> complaint("density", 2.0)
        'must be above 0 and at most 1'
    """
    limits = OPTIONS[name].metadata
    least, most, above, choices = (limits[k] for k in ("least", "most", "above", "choices"))
    if name == "blocksize":
        try:
            read_blocksize(value)
        except ValueError as allowed:
            return str(allowed)
    if value is None or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, str):
        return f"must be one of {', '.join(choices)}" if choices and value not in choices else ""
    inside = (
        (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
    )
    if inside and value == value and abs(value) != float("inf"):
        return ""
    wanted = [
        f"{word} {limit:g}"
        for word, limit in (("at least", least), ("above", above), ("at most", most))
        if limit is not None
    ]
    return f"must be {' and '.join(wanted) or 'a finite number'}"


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, before any time is spent on them.

    Raises:
        CommandError: Names the flag, what was given, what is allowed.

    Examples:
        >>> check(Settings())
    """
    for name in OPTIONS:
        value = getattr(settings, name)
        if wrong := complaint(name, value):
            raise CommandError(f"{flag(name)} {value}: {wrong}")
    _, width, heads = settings.size
    if width % heads:
        fewer, more = (
            next((n for n in range(heads, end, step) if width % n == 0), None)
            for end, step in ((0, -1), (width + 1, 1))
        )
        fit = " or ".join(str(n) for n in (fewer, more) if n)
        raise CommandError(
            f"--width {width} and --heads {heads}: the heads must divide the width; take "
            f"--heads {fit}, or --width {-(-width // heads) * heads}"
        )
    if max(settings.block) > width:
        raise CommandError(f"--blocksize {settings.blocksize}: must be at most the width, {width}")
    method_of(settings)
