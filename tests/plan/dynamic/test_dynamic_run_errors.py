"""What cannot be run says what was asked, given and allowed, and what to do."""

import copy
import dataclasses

import pytest
import torch

from sparsetile import BSR
from sparsetile.machine import OutOfTileMemory
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._run import dynamic_program, run_dynamic
from support import without_type_checks
from support_dynamic_run import dense_operands, draw, hand_plan, tiles_machine


@pytest.fixture(name="ready")
def _ready():
    A = draw(12, 16, (4, 4), 0.5)
    plan = hand_plan(A, 8, (3, 1, 2), grad_w=False)
    return plan, encode(plan, A), *dense_operands(plan)


def test_a_pass_that_was_not_planned(ready):
    plan, encoded, x, dy = ready
    with pytest.raises(ValueError, match=r"pass_.*'grad_w'.*'fwd', 'grad_a'.*grad_w=True"):
        run_dynamic(plan, encoded, dy, x, pass_="grad_w")
    wanted = r"'backward'.*'fwd', 'grad_a', 'grad_w'.*choose"
    with without_type_checks(), pytest.raises(ValueError, match=wanted):
        dynamic_program(plan, "backward")


def test_a_matrix_encoded_for_another_plan(ready):
    plan, encoded, x, _ = ready
    other = dataclasses.replace(plan, n=4, z_size=2)
    with pytest.raises(ValueError, match=r"encoded.*another plan.*encode it for this plan"):
        run_dynamic(other, encoded, x[:, :4].contiguous())


def test_wrong_operands(ready):
    plan, encoded, x, dy = ready
    with pytest.raises(ValueError, match=r"2 of them.*x for 'fwd'"):
        run_dynamic(plan, encoded, x, dy)
    with pytest.raises(ValueError, match=r"x.*\(12, 8\).*\(16, 8\).*planned"):
        run_dynamic(plan, encoded, dy)
    with pytest.raises(ValueError, match=r"dy.*\(16, 8\).*\(12, 8\)"):
        run_dynamic(plan, encoded, x, pass_="grad_a")
    with pytest.raises(TypeError, match=r"x.*float64.*float32.*convert"):
        run_dynamic(plan, encoded, x.double())
    with without_type_checks(), pytest.raises(TypeError, match=r"x.*list"):
        run_dynamic(plan, encoded, x.tolist())


def test_a_machine_that_is_too_small(ready):
    plan, _, x, _ = ready
    tiny = dataclasses.replace(tiles_machine(6), memory_per_tile=256)
    small = dataclasses.replace(plan, machine=tiny)
    encoded = encode(small, draw(12, 16, (4, 4), 0.5))
    with pytest.raises(OutOfTileMemory, match="tile"):
        run_dynamic(small, encoded, x)


def test_gradients_do_not_stand_in_the_way(ready):
    plan, encoded, x, _ = ready
    y, _ = run_dynamic(plan, encoded, x.requires_grad_())
    assert not y.requires_grad and isinstance(y, torch.Tensor)


@pytest.mark.parametrize("ends", [(60000,) * 3, (0, 1, 2), (1, 0, 2), (1, 1, 5)])
def test_corrupt_ends_are_refused_before_anything_runs(ready, ends):
    plan, encoded, x, _ = ready
    corrupt = copy.deepcopy(encoded)
    corrupt.meta[:3] = ends
    with pytest.raises(ValueError, match="corrupt or invalid meta-information"):
        run_dynamic(plan, corrupt, x)


def test_lazily_negated_tensors_are_read(ready):
    plan, encoded, x, _ = ready
    y, _ = run_dynamic(plan, encoded, torch._neg_view(-x))
    assert torch.equal(y, run_dynamic(plan, encoded, x)[0])
    A = draw(12, 16, (4, 4), 0.5)
    negated = encode(plan, BSR(torch._neg_view(-A.values), A.pattern))
    assert (negated.values == encode(plan, A).values).all()


def test_tensors_without_data_of_their_own(ready):
    plan, encoded, x, _ = ready
    with pytest.raises(ValueError, match=r"x.*holds data"):
        run_dynamic(plan, encoded, x.to("meta"))
    with pytest.raises(ValueError, match=r"x.*sparse_coo.*strided"):
        run_dynamic(plan, encoded, x.to_sparse())


def test_things_of_another_kind(ready):
    plan, encoded, x, _ = ready
    with without_type_checks():
        with pytest.raises(TypeError, match=r"plan.*None.*make one with plan_dynamic"):
            run_dynamic(None, encoded, x)
        with pytest.raises(TypeError, match=r"plan.*None.*make one with plan_dynamic"):
            encode(None, draw(12, 16, (4, 4), 0.5))
        with pytest.raises(TypeError, match=r"encoded.*None.*encode it"):
            run_dynamic(plan, None, x)
        with pytest.raises(ValueError, match=r"pass_.*\[\].*choose"):
            run_dynamic(plan, encoded, x, pass_=[])
