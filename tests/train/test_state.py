"""Saved states of trainers: any fault is refused by its key, and changes nothing."""

import jaxtyping
import pytest
import torch

from sparsetile.nn import Linear
from sparsetile.train import DynSparse


@pytest.fixture(autouse=True)
def _no_type_checker():
    # What a user meets are the library's own messages.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def trained(steps):
    torch.manual_seed(steps)
    layer = Linear(12, 12, blocksize=4, density=0.5)
    optimizer = torch.optim.Adam(layer.parameters())
    trainer = DynSparse(total_steps=10, every=2, seed=steps).attach(layer, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        layer(torch.randn(3, 12)).sum().backward()
        optimizer.step()
    return trainer, optimizer


def bits(*numbers):
    return {"": torch.tensor(numbers, dtype=torch.uint8)}


MOVED = {"step": 2, "moved": {"": 1}, "dropped": {"": 1}, "wasted": {"": 0}, "blocks": {"": 4}}
REFUSED = {
    "step_count_negative": ({"step_count": -1}, r"\['step_count'\] must be 0 or more, got -1"),
    "step_count_text": ({"step_count": "4"}, r"\['step_count'\] must be an int"),
    "version_tensor": ({"version": torch.tensor([3, 3])}, "must be of version 3"),
    "generator_text": ({"generator": "mt"}, r"\['generator'\] must be the uint8 tensor"),
    "generator_short": ({"generator": torch.zeros(3, dtype=torch.uint8)}, r"\['generator'\] is no"),
    "history_none": ({"history": None}, r"\['history'\] must be a list"),
    "history_number": ({"history": [MOVED, 3]}, r"\['history'\]\[1\] must be a mapping"),
    "history_lacks": (
        {"history": [{"step": 2}]},
        r"\['history'\]\[0\].*lacks \['blocks', 'dropped'",
    ),
    "history_step": ({"history": [{**MOVED, "step": -2}]}, r"\[0\]\['step'\] must be 1 to 4"),
    "history_later": ({"history": [{**MOVED, "step": 6}]}, r"\[0\]\['step'\] must be 1 to 4"),
    "history_moved": ({"history": [{**MOVED, "moved": 4}]}, r"\['moved'\] must be a mapping"),
    "history_count": ({"history": [{**MOVED, "moved": {"": 0.5}}]}, r"\[''\] must be an int"),
    "positions_text": ({"positions": {"": "9"}}, r"\['positions'\]\[''\] must be an int"),
    "other_layers": ({"positions": {"x": 9}}, "other sparse layers"),
    "other_size": ({"positions": {"": 16}}, "other sparse layers"),
    "at_start_list": ({"at_start": [1]}, r"\['at_start'\] must be a mapping"),
    "at_start_more": ({"at_start": {"": 10}}, r"\['at_start'\]\[''\] must be 0 to 9, got 10"),
    "born_long": ({"born": {"": torch.zeros(4)}}, r"\['born'\]\[''\] must be a torch.uint8"),
    "born_many": (
        {"born": {"": torch.zeros(10, dtype=torch.uint8)}},
        r"\['born'\]\[''\] must be a vector.*at most 9, got shape \[10\]",
    ),
    "memory_number": ({"memory": {"": {"momentum": 3}}}, r"\['momentum'\] must be a tensor"),
    "ever_list": ({"ever": [1]}, r"\['ever'\] must be a mapping"),
    "ever_names": ({"ever": {"x": bits(1, 1)[""]}}, r"\['ever'\] must have the layers"),
    "ever_bool": ({"ever": {"": torch.ones(9).bool()}}, r"\['ever'\]\[''\] must be a uint8"),
    "ever_short": ({"ever": bits(1)}, r"\['ever'\]\[''\] must be of shape \[2\]"),
    "ever_beyond": ({"ever": bits(1, 2)}, r"\['ever'\]\[''\] marks positions beyond the 9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_state_is_refused_by_its_key_and_nothing_changes(case):
    changes, message = REFUSED[case]
    state = {**trained(4)[0].state_dict(), **changes}
    trainer, _ = trained(6)
    before = trainer.state_dict()
    with pytest.raises((TypeError, ValueError), match=message):
        trainer.load_state_dict(state)
    after = trainer.state_dict()
    assert torch.equal(after.pop("generator"), before.pop("generator"))
    assert torch.equal(after.pop("ever")[""], before.pop("ever")[""])
    assert torch.equal(after.pop("born")[""], before.pop("born")[""])
    assert after == before


def test_the_state_holds_one_bit_for_each_position():
    state = trained(4)[0].state_dict()
    assert state["ever"][""].dtype == torch.uint8
    assert state["ever"][""].shape == (2,)
