"""A sparse operand as the tiles hold it: one bucket of values and of meta-information each."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt16

from sparsetile.matrix._check import message
from sparsetile.plan.dynamic._layout import BITS_PER_WORD, overflow_words
from sparsetile.plan.dynamic._plan import DynamicPlan


@dataclass(frozen=True, eq=False, repr=False)
class Encoded:
    """A sparse matrix dealt to the buckets of a plan.

    Bucket `t` belongs to tile `t` of the plan. The words are those of Graphcore's popsparse library
    (poplibs); `sparsetile.plan.dynamic._layout` describes them.

    Attributes:
        plan: The plan that it was encoded for.
        meta: All meta-information: what has spilled where, then for each bucket its words, and
            behind these those of the gradient of the input if it has its own.
        values: The buckets' values one after the other, zeros where nothing is stored.

    Raises:
        ValueError: If the arrays are not as long as the plan asks for.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> plan = small_plan()
        >>> empty = np.zeros(4 + 4 * plan.bucket_meta, np.uint16), np.zeros(32, np.float32)
        >>> Encoded(plan, *empty).value_buckets.shape
        (4, 8)
    """

    plan: DynamicPlan
    meta: UInt16[np.ndarray, " words"]
    values: Float[np.ndarray, " values"]

    def __post_init__(self) -> None:
        plan = self.plan
        words = plan.bucket_meta + plan.bucket_meta_grad_a
        lengths = (
            ("meta", self.meta, overflow_words(plan) + plan.tiles * words),
            ("values", self.values, plan.tiles * plan.bucket_values),
        )
        for name, array, length in lengths:
            if array.shape != (length,):
                raise ValueError(
                    message(
                        name,
                        got=f"an array of shape {array.shape}",
                        allowed=f"shape ({length},) for this plan of {plan.tiles} buckets",
                        fix="encode the matrix for this plan",
                    )
                )

    @property
    def meta_buckets(self) -> UInt16[np.ndarray, "tiles words"]:
        """Words of each bucket, those of the gradient of the input left out; a view."""
        return self._buckets[:, : self.plan.bucket_meta]

    @property
    def meta_buckets_grad_a(self) -> UInt16[np.ndarray, "tiles words"]:
        """Words of each bucket for the gradient of the input, none if it shares; a view."""
        return self._buckets[:, self.plan.bucket_meta :]

    @property
    def value_buckets(self) -> Float[np.ndarray, "tiles values"]:
        """Values of each bucket; a view."""
        return self.values.reshape(self.plan.tiles, self.plan.bucket_values)

    @property
    def overflow_ends(self) -> UInt16[np.ndarray, " 3"]:
        """End indices of the loops over x, y and z in which buckets travel; a view."""
        return self.meta[:3]

    @property
    def overflow_set(self) -> UInt16[np.ndarray, " words"]:
        """The distances along x that something has spilled, two bits a word; a view."""
        return self.meta[3 : overflow_words(self.plan)]

    @property
    def distances(self) -> Bool[np.ndarray, " x"]:
        """For each distance along x whether something has spilled that far."""
        bits = self.overflow_set[:, None] >> np.arange(BITS_PER_WORD, dtype=np.uint16)
        return (bits & 1).astype(np.bool_).reshape(-1)[: self.plan.x]

    @property
    def _buckets(self) -> UInt16[np.ndarray, "tiles words"]:
        return self.meta[overflow_words(self.plan) :].reshape(self.plan.tiles, -1)

    def __repr__(self) -> str:
        plan = self.plan
        x, y, z = self.overflow_ends
        return (
            f"Encoded({plan.m}×{plan.k}, {plan.tiles} buckets of {plan.bucket_values} values and "
            f"{plan.bucket_meta + plan.bucket_meta_grad_a} words, steps {x}×{y}×{z})"
        )


def steps(encoded: Encoded) -> tuple[int, int, int]:
    """How far the buckets have to travel: the end indices of the loops over x, y and z.

    Each bucket is multiplied `X·Y·Z` times, once on every tile that it comes to. Where nothing has
    spilled out of its part of W, that is `Z`, the batch partitions, and nothing is propagated.

    Args:
        encoded: What the buckets hold.

    Returns:
        The ends `(X, Y, Z)`.

    Raises:
        ValueError: If the meta-information has ends that the plan cannot have.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> steps(encode(small_plan(), small_matrix()))
        (1, 1, 1)
        >>> steps(encode(small_plan(bucket_values=2), small_matrix()))
        (1, 2, 1)
    """
    plan, (x, y, z) = encoded.plan, (int(end) for end in encoded.overflow_ends)
    if not (1 <= x <= plan.x and 1 <= y <= plan.y and z == plan.z):
        raise ValueError(
            message(
                "corrupt or invalid meta-information",
                got=f"loops of {x}×{y}×{z} steps",
                allowed=f"at most {plan.x}×{plan.y}, and {plan.z} over the batch",
                fix="encode the matrix again",
            )
        )
    return x, y, z
