"""Lines of text finished by a trained model: the last check, for a person's eyes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench._tokens import MASK, PAD, Objective


@dataclass(frozen=True)
class Completion:
    """A line the model was shown the beginning of.

    Args:
        given: What it was shown; for a masked model, with `▢` for each hidden piece.
        made: What it put there.
        truth: What the text has there.
    """

    given: str
    made: str
    truth: str


def pick_lines(held_out: str, count: int = 5) -> list[str]:
    """Choose lines spread over the held-out text, neither short nor long."""
    lines = [line for line in held_out.splitlines() if 30 <= len(line.strip()) and len(line) <= 90]
    lines = lines or [line for line in held_out.splitlines() if line.strip()]
    step = max(1, len(lines) // count)
    return [line.rstrip() for line in lines[step // 2 :: step]][:count]


def complete(
    model: nn.Module, tokenizer: Any, lines: list[str], objective: Objective, sequence: int
) -> list[Completion]:
    """Let a model finish lines: the second half of each, or its hidden pieces.

    Args:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer.
        lines: Whole lines of held-out text.
        objective: What the model was trained for.
        sequence: Tokens it can see.

    Returns:
        One completion a line.
    """
    finish = _continue if objective == "clm" else _fill
    with torch.no_grad():
        return [finish(model, tokenizer, line, sequence) for line in lines]


def _continue(model: nn.Module, tokenizer: Any, line: str, sequence: int) -> Completion:
    # Cut between words: half a word would not be tokenized as it was in training.
    cut = line.find(" ", len(line) // 2)
    cut = cut if cut > 0 else len(line) // 2
    given, truth = line[:cut], line[cut:]
    # A newline before it: the line starts as lines do in the text.
    shown = tokenizer.encode("\n" + given).ids[-(sequence // 2) :]
    banned = _special(tokenizer)
    # A young model that finds no end would go on in circles.
    most = min(sequence // 2, len(tokenizer.encode(truth).ids) + 4)
    made: list[int] = []
    while len(made) < most:
        logits = model(input_ids=torch.tensor([shown + made])).logits[0, -1]
        logits[banned] = -torch.inf
        made.append(int(logits.argmax()))
        if "\n" in tokenizer.decode(made).lstrip("\n"):
            break
    # A few tokens are halves of a letter: alone they decode to nothing readable.
    first = tokenizer.decode(made).lstrip("\n").split("\n")[0].replace("\ufffd", "")
    return Completion(given, first, truth)


def _fill(model: nn.Module, tokenizer: Any, line: str, sequence: int) -> Completion:
    ids = tokenizer.encode("\n" + line).ids[:sequence]
    mask = tokenizer.token_to_id(MASK)
    places = list(range(3, len(ids), 6)) or [len(ids) - 1]
    hidden = [mask if place in places else token for place, token in enumerate(ids)]
    logits: Tensor = model(input_ids=torch.tensor([hidden])).logits[0]
    logits[:, _special(tokenizer)] = -torch.inf
    made = [int(logits[place].argmax()) for place in places]
    given = "".join(
        "▢" if place in places else tokenizer.decode([token]) for place, token in enumerate(ids)
    )
    return Completion(
        given.strip("\n"),
        " · ".join(tokenizer.decode([token]) for token in made),
        " · ".join(tokenizer.decode([ids[place]]) for place in places),
    )


def _special(tokenizer: Any) -> list[int]:
    return [tokenizer.token_to_id(MASK), tokenizer.token_to_id(PAD)]
