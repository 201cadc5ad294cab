"""Arguments as the user wrote them, turned into what the code needs or into a helpful message."""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor


def message(asked: str, *, got: object, allowed: str, fix: str) -> str:
    """Join the four parts of an error: what was asked, was given, is allowed, and what to do.

    Args:
        asked: The function or argument that was asked for, in the user's words.
        got: What was given.
        allowed: What is allowed.
        fix: What to do instead.

    Returns:
        One line of text for a `ValueError` or `TypeError`.

    Examples:
        >>> message("density", got=1.5, allowed="a number in (0, 1]", fix="pass 1.0 for all")
        'density: got 1.5; allowed: a number in (0, 1]; pass 1.0 for all'
    """
    return f"{asked}: got {got}; allowed: {allowed}; {fix}"


def describe(value: object) -> str:
    """Say what an object is in few words, tensors by dtype, shape and device.

    Args:
        value: Anything a user passed.

    Returns:
        A short description.

    Examples:
        >>> describe(torch.zeros(2, 3))
        'a float32 tensor of shape [2, 3] on cpu'
    """
    if isinstance(value, Tensor):
        layout = "" if value.layout == torch.strided else f"{layout_name(value.layout)} "
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {layout}{dtype} tensor of shape {list(value.shape)} on {value.device}"
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "…"
    return f"{text} ({type(value).__name__})"


def layout_name(layout: torch.layout) -> str:
    """Name a torch layout the way users write it.

    Args:
        layout: For instance `torch.sparse_bsr`.

    Returns:
        The name without its module.

    Examples:
        >>> layout_name(torch.sparse_bsr)
        'sparse_bsr'
    """
    return str(layout).removeprefix("torch.")


def as_int(name: str, value: object, *, least: int, fix: str, most: int = 2**62) -> int:
    """Take an integer between two bounds.

    Args:
        name: Argument name for the message.
        value: What the user passed; `bool` is refused, numpy integers are taken.
        least: Smallest value allowed.
        fix: What to do instead, for the message.
        most: Largest value allowed; by default sums of two still fit int64.

    Returns:
        The value as a Python integer.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is too small or too large.

    Examples:
        >>> as_int("seed", 3, least=0, fix="pass seed=0")
        3
    """
    allowed = f"an integer of at least {least}"
    try:
        if isinstance(value, (bool, Tensor)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(message(name, got=describe(value), allowed=allowed, fix=fix)) from None
    if number < least:
        raise ValueError(message(name, got=number, allowed=allowed, fix=fix))
    if number > most:
        # Such a number may have more digits than Python would print.
        got = f"an integer of {number.bit_length()} bits" if number > 2**64 else number
        raise ValueError(message(name, got=got, allowed=f"an integer of at most {most}", fix=fix))
    return number


def as_size(name: str, value: object) -> int:
    """Take a number of rows or columns: an integer from 0 up.

    Args:
        name: Argument name for the message.
        value: What the user passed.

    Returns:
        The size.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is negative.

    Examples:
        >>> as_size("m", 48)
        48
    """
    return as_int(name, value, least=0, fix="pass the number of rows or columns, as in m=48")


def as_shape(name: str, value: object) -> tuple[int, int]:
    """Take the two sizes of a matrix.

    Args:
        name: Argument name for the message.
        value: A pair of sizes.

    Returns:
        `(m, k)`.

    Raises:
        TypeError: If it is not a pair of integers.
        ValueError: If a size is negative.

    Examples:
        >>> as_shape("shape", [4, 6])
        (4, 6)
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TypeError(
            message(
                name, got=describe(value), allowed="two sizes (m, k)", fix="pass (rows, columns)"
            )
        )
    return as_size(f"{name}[0]", value[0]), as_size(f"{name}[1]", value[1])


def as_blocksize(value: object, name: str = "blocksize") -> tuple[int, int]:
    """Take a block shape: one side of a square or `(r, c)`.

    Args:
        value: What the user passed.
        name: Argument name for the message.

    Returns:
        Rows and columns of a block.

    Raises:
        TypeError: If it is neither an integer nor a pair of integers.
        ValueError: If a side is below 1 or beyond int32.

    Examples:
        >>> as_blocksize(16), as_blocksize((1, 4))
        ((16, 16), (1, 4))
    """
    fix = "pass one side, as in blocksize=16, or two, as in blocksize=(16, 8)"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise TypeError(
                message(name, got=describe(value), allowed="an integer or a pair (r, c)", fix=fix)
            )
        r, c = value
    else:
        r = c = value
    most = 2**31 - 1
    r, c = (as_int(name, side, least=1, most=most, fix=fix) for side in (r, c))
    return r, c


def as_density(value: object, name: str = "density") -> float:
    """Take the fraction of blocks to store, in (0, 1].

    Args:
        value: What the user passed; NaN is refused.
        name: Argument name for the message.

    Returns:
        The density.

    Raises:
        TypeError: If it is not a number.
        ValueError: If it is outside (0, 1].

    Examples:
        >>> as_density(0.125)
        0.125
    """
    allowed = "a number in (0, 1]"
    fix = "pass the fraction of blocks to keep, as in density=0.1"
    try:
        if isinstance(value, (bool, str, Tensor)):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(message(name, got=describe(value), allowed=allowed, fix=fix)) from None
    except OverflowError:
        got = "a number beyond float64"
        raise ValueError(message(name, got=got, allowed=allowed, fix=fix)) from None
    if not 0.0 < number <= 1.0:
        raise ValueError(message(name, got=number, allowed=allowed, fix=fix))
    return number


def as_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Take one of a few words.

    Args:
        name: Argument name for the message.
        value: What the user passed.
        choices: The words allowed.

    Returns:
        The word.

    Raises:
        ValueError: If it is none of them.

    Examples:
        >>> as_choice("score", "l1", ("l1", "l2"))
        'l1'
    """
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(choices)
        raise ValueError(
            message(name, got=describe(value), allowed=allowed, fix="pass one of these")
        )
    return value


def as_device(value: torch.device | str | int | None) -> torch.device:
    """Take a device on which tensors hold data; None is the CPU.

    Args:
        value: What the user passed.

    Returns:
        The device.

    Raises:
        ValueError: If there is no such device, or it is the meta device.

    Examples:
        >>> as_device(None)
        device(type='cpu')
    """
    fix = 'pass a device that holds data, as in device="cpu"'
    try:
        device = torch.device("cpu" if value is None else value)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(
            message("device", got=describe(value), allowed="a torch device", fix=fix)
        ) from None
    if device.type == "meta":
        raise ValueError(
            message("device", got="meta", allowed="a device whose memory can be read", fix=fix)
        )
    if device.type != "cpu":
        # Only an attempt tells whether this machine, and this build of torch, has the device.
        try:
            torch.empty(0, device=device)
        except (AssertionError, ImportError, RuntimeError) as error:
            allowed = "a device of this machine that torch can use"
            raise ValueError(
                message("device", got=describe(value), allowed=allowed, fix=fix)
            ) from error
    return device


def check_dense(name: str, value: object, *, dtype: torch.dtype | None = None) -> None:
    """Refuse anything but a strided matrix that holds data.

    Args:
        name: Argument name for the message.
        value: What the user passed.
        dtype: The only dtype allowed, or None for any.

    Raises:
        TypeError: If it is not a tensor, or of another dtype.
        ValueError: If it is sparse, on the meta device or not of two dimensions.

    Examples:
        >>> check_dense("w", torch.zeros(2, 3))
    """
    if not isinstance(value, Tensor):
        raise TypeError(
            message(
                name,
                got=describe(value),
                allowed="a torch tensor of two dimensions",
                fix="convert it with torch.as_tensor",
            )
        )
    if value.layout != torch.strided:
        raise ValueError(
            message(
                name,
                got=describe(value),
                allowed="a dense (strided) tensor",
                fix="use BSR.from_torch for sparse tensors",
            )
        )
    if value.ndim != 2:
        raise ValueError(
            message(
                name,
                got=describe(value),
                allowed="two dimensions (m, k)",
                fix="reshape it to a matrix first",
            )
        )
    if value.is_meta:
        raise ValueError(
            message(
                name,
                got=describe(value),
                allowed="a tensor that holds data",
                fix="load the weights before looking at them, as with to_empty and load_state_dict",
            )
        )
    if dtype is not None and value.dtype != dtype:
        wanted = str(dtype).removeprefix("torch.")
        raise TypeError(
            message(
                name,
                got=describe(value),
                allowed=f"a {wanted} tensor",
                fix=f"convert it with {name}.to(torch.{wanted})",
            )
        )
