"""GMP begins with more than it is to end with."""

import pytest

from sparsetile.train import GMP
from support_train import STEPS, make, roundtrip, run


def attach(start, end):
    model, optimizer = make(density=start)
    return model, optimizer, GMP(density=end, total_steps=STEPS, every=4).attach(model, optimizer)


@pytest.mark.parametrize("end", [0.25, 0.5])
def test_a_model_that_is_as_sparse_already_is_refused_at_the_first_step(end):
    model, optimizer, _ = attach(0.2, end)
    with pytest.raises(ValueError, match=rf"GMP\(density={end}\) goes from dense.* density 0\.\d"):
        run(model, optimizer, [0])


@pytest.mark.parametrize(("start", "end"), [(1.0, 0.1), (0.5, 0.1), (1.0, 1.0)])
def test_others_begin(start, end):
    model, optimizer, trainer = attach(start, end)
    run(model, optimizer, range(5))
    assert len(trainer.history) == 1


def test_a_run_that_has_come_to_its_density_can_be_resumed():
    model, optimizer, _ = attach(1.0, 0.25)
    run(model, optimizer, range(STEPS - 1))
    saved = roundtrip([model.state_dict(), optimizer.state_dict()])
    again, _ = make(density=1.0)
    again.load_state_dict(saved[0])  # the trainer comes when the model has its last density
    its_optimizer = type(optimizer)(again.parameters(), lr=1e-2)
    trainer = GMP(density=0.25, total_steps=STEPS, every=4).attach(again, its_optimizer)
    its_optimizer.load_state_dict(saved[1])
    run(again, its_optimizer, [STEPS - 1])
    assert trainer.step_count == STEPS
