"""The loss of a student that learns from a teacher's outputs."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparsetile.prune._check import checked_positive, message


def distillation_loss(
    student_logits: Float[Tensor, "*batch classes"],
    teacher_logits: Float[Tensor, "*batch classes"],
    labels_loss: Float[Tensor, ""] | None = None,
    *,
    temperature: float = 2.0,
    alpha: float = 0.9,
) -> Float[Tensor, ""]:
    """Mix the teacher's soft targets with the loss on the labels.

    `alpha · T² · KL(teacher ‖ student) + (1 - alpha) · labels_loss`, both softened by the
    temperature `T` (Hinton et al., "Distilling the Knowledge in a Neural Network", 2015). Shares of
    0.9 and 0.1 are those of block movement pruning (Lagunas et al., 2021). The divergence is the
    mean over the batch; no gradient flows to the teacher.

    Args:
        student_logits: Outputs of the model that is trained `[..., classes]`.
        teacher_logits: Outputs of the dense model, of the same shape.
        labels_loss: Loss of the student on the labels; without labels the teacher counts alone.
        temperature: `T`, above 0.
        alpha: Share of the teacher, in [0, 1].

    Returns:
        The loss.

    Raises:
        TypeError: If a number is none.
        ValueError: If the shapes differ, or a number is out of range.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[1.0, 2.0]])
        >>> distillation_loss(logits, logits, torch.tensor(0.5))
        tensor(0.0500)
    """
    T = checked_positive("temperature", temperature, fix="2.0 is usual")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise TypeError(
            message("alpha", got=repr(alpha), allowed="a number in [0, 1]", fix="0.9 is usual")
        )
    if not 0 <= alpha <= 1:
        raise ValueError(message("alpha", got=alpha, allowed="0 to 1", fix="0.9 is usual"))
    if student_logits.shape != teacher_logits.shape:
        raise ValueError(
            message(
                "teacher_logits",
                got=f"shape {list(teacher_logits.shape)}",
                allowed=f"the student's shape {list(student_logits.shape)}",
                fix="run both models on the same batch",
            )
        )
    classes = student_logits.shape[-1]
    student = F.log_softmax(student_logits.reshape(-1, classes) / T, dim=-1)
    teacher = F.log_softmax(teacher_logits.detach().reshape(-1, classes) / T, dim=-1)
    soft = F.kl_div(student, teacher, reduction="batchmean", log_target=True) * T * T
    return soft if labels_loss is None else alpha * soft + (1 - alpha) * labels_loss
