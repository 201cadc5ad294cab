"""A plan and a matrix that do not belong together are refused before anything is encoded."""

from sparsetile.matrix import BSR, COO, CSC, CSR
from sparsetile.matrix._check import describe, message
from sparsetile.plan.dynamic._encoded import Encoded, steps
from sparsetile.plan.dynamic._plan import DynamicPlan


def check_plan(plan: DynamicPlan) -> None:
    """Refuse a plan whose partitions, blocks and buckets contradict each other.

    Args:
        plan: What should be a plan.

    Raises:
        TypeError: If it is none.
        ValueError: If nothing can be encoded for it.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> check_plan(small_plan())
    """
    _check_kind(plan)
    (r, c), (rows, columns) = plan.kernel_block, plan.blocksize
    area = r * c
    faults = (
        (rows % r or columns % c, f"blocks of {r}×{c} cut from blocks of {rows}×{columns}"),
        (plan.m % rows or plan.k % columns, f"blocks of {rows}×{columns} in {plan.m}×{plan.k}"),
        (plan.x_size % r or plan.y_size % c, f"partitions of {plan.x_size}×{plan.y_size}"),
        (plan.x * plan.x_size < plan.m, f"{plan.x} partitions of {plan.x_size} rows"),
        (plan.y * plan.y_size < plan.k, f"{plan.y} partitions of {plan.y_size} columns"),
        (plan.z * plan.z_size < plan.n, f"{plan.z} partitions of {plan.z_size} of the batch"),
        (plan.bucket_values % area, f"buckets of {plan.bucket_values} values"),
        (plan.bucket_meta < 1, f"buckets of {plan.bucket_meta} words"),
        (plan.bucket_meta_grad_a and area > 1, "words of blocks for the gradient of the input"),
    )
    for wrong, given in faults:
        if wrong:
            raise ValueError(
                message(
                    "plan",
                    got=given,
                    allowed=f"whole blocks of {r}×{c} that cover {plan.m}×{plan.k} by {plan.n}, "
                    "and an end mark in every bucket",
                    fix="let the planner make the plan",
                )
            )


def as_operand(A: BSR | COO | CSC | CSR, plan: DynamicPlan) -> BSR:
    """Take a matrix that the plan was made for.

    Args:
        A: The matrix.
        plan: The plan.

    Returns:
        The same as a BSR.

    Raises:
        TypeError: If it is no sparse matrix of this library.
        ValueError: If shape or blocks are not those of the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> as_operand(small_matrix(), small_plan()).nnzb
        8
    """
    if isinstance(A, (COO, CSC, CSR)):
        A = A.to_bsr()
    if not isinstance(A, BSR):
        raise TypeError(
            message(
                "A",
                got=describe(A),
                allowed="a sparsetile.BSR, COO, CSC or CSR",
                fix="convert it, as with BSR.from_dense or BSR.from_scipy",
            )
        )
    wanted = (plan.m, plan.k), plan.blocksize
    if (A.shape, A.blocksize) != wanted:
        (m, k), (r, c) = wanted
        raise ValueError(
            message(
                "A",
                got=repr(A),
                allowed=f"{m}×{k} in whole blocks of {r}×{c}, as planned",
                fix="plan for this matrix, or store it in blocks of the plan",
            )
        )
    return A


def check_encoded(plan: DynamicPlan, encoded: Encoded) -> None:
    """Refuse anything but a matrix that was encoded for the plan, before anything is run.

    Args:
        plan: What should be a plan.
        encoded: What should be a matrix encoded for it.

    Raises:
        TypeError: If either is something else.
        ValueError: If it was encoded for another plan, or its buckets would travel too far.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> check_encoded(small_plan(), encode(small_plan(), small_matrix()))
    """
    _check_kind(plan)
    if not isinstance(encoded, Encoded):
        raise TypeError(
            message(
                "encoded",
                got=describe(encoded),
                allowed="a matrix encoded for the plan",
                fix="encode it, as with encode(plan, A)",
            )
        )
    if encoded.plan != plan:
        raise ValueError(
            message(
                "encoded",
                got=f"{encoded!r}, encoded for another plan",
                allowed="a matrix encoded for the plan that is run",
                fix="encode it for this plan",
            )
        )
    steps(encoded)


def _check_kind(plan: DynamicPlan) -> None:
    if not isinstance(plan, DynamicPlan):
        raise TypeError(
            message(
                "plan",
                got=describe(plan),
                allowed="a DynamicPlan",
                fix="make one with plan_dynamic",
            )
        )
