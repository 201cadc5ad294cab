"""Who takes part in a benchmark, and what each needs to be installed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from sparsetile.bench._bench_case import Operands
from sparsetile.bench._errors import CommandError

OWN, DENSE, DENSE_BF16 = "sparsetile", "torch-dense", "torch-dense-bf16"
ALWAYS = (OWN, DENSE)


@dataclass(frozen=True)
class Call:
    """One peer's way to compute a case.

    Args:
        run: What is timed.
        result: Makes of what `run` gave the tensors that `Operands.truth` has.
        backend: Library that computes.
        kernel: Its function.
        kernel_of: Asked after a run, where the library tells which kernel ran.
    """

    run: Callable[[], Any]
    result: Callable[[Any], tuple[Tensor, ...]]
    backend: str
    kernel: str = ""
    kernel_of: Callable[[], str] | None = None


@dataclass(frozen=True)
class Peer:
    """A library to compare with.

    Args:
        name: As in the CSV.
        family: Peers of one family run in one process; two pools of threads in one would fight.
        modules: What Python must find.
        packages: Whose versions its rows name.
    """

    name: str
    family: str
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def installed(self) -> bool:
        """Whether this machine has it."""
        return all(find_spec(module) is not None for module in self.modules)

    def versions(self) -> str:
        """Versions of its packages, such as `numba 0.68.1`."""
        found = []
        for package in self.packages:
            try:
                found.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                continue
        return ", ".join(found)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(OWN, "torch"),
        Peer(DENSE, "torch"),
        Peer(DENSE_BF16, "torch"),
        Peer("torch-csr", "torch"),
        Peer("torch-bsr", "torch"),
        Peer("scipy-csr", "scipy", ("scipy",), ("scipy",)),
        Peer("scipy-bsr", "scipy", ("scipy",), ("scipy",)),
        Peer("mkl-csr", "mkl", ("sparse_dot_mkl", "scipy"), ("sparse_dot_mkl", "mkl")),
        Peer("numba", "numba", ("numba",), ("numba",)),
        Peer("jax-bcsr", "jax", ("jax", "jaxlib"), ("jax", "jaxlib")),
    )
}
FAMILIES = tuple(dict.fromkeys(peer.family for peer in PEERS.values()))


def choose_peers(text: str) -> list[str]:
    """Read `--peers`: `all`, `none`, or names with commas.

    Returns:
        Names in the order of `PEERS`; sparsetile and torch's dense product are always there.

    Raises:
        CommandError: If a name is unknown.

    Examples:
        >>> choose_peers("numba")
        ['sparsetile', 'torch-dense', 'numba']
    """
    if text == "all":
        return list(PEERS)
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in PEERS]:
        raise CommandError(
            f"--peers {text}: there is no peer {unknown[0]!r}; the peers are {', '.join(PEERS)}; "
            "give some of them with commas, all, or none"
        )
    return [name for name in PEERS if name in (*ALWAYS, *names)]


def peers_of(names: Sequence[str], dtype: str) -> list[str]:
    """Leave out who would run twice: where all is bfloat16, dense is dense in bfloat16."""
    return [name for name in names if not (name == DENSE_BF16 and dtype == "bfloat16")]


def prepare(name: str, given: Operands) -> Call:
    """Make ready for timing: all that is done once for a weight is done here.

    Args:
        name: Of the peer.
        given: The operands.

    Returns:
        What to time.

    Raises:
        CannotError: If the peer cannot compute such a case.
    """
    family = "own" if name == OWN else PEERS[name].family
    call: Call = import_module(f"sparsetile.bench._peers_{family}").prepare(name, given)
    return call
