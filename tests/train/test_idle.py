"""A run too short for its first update says so."""

import warnings

import pytest
import torch

from sparsetile.nn import Linear
from sparsetile.train import GMP, ITOP, MEST, SET, SNFS, DynSparse, RigL, SRigL, Static, TopKAST

IDLE = {
    "RigL": (RigL(total_steps=50), "every=100 does not fit into the 38 steps"),
    "SRigL": (SRigL(total_steps=50), "every=100 does not fit into the 38 steps"),
    "ITOP": (ITOP(total_steps=50), "every=1500 does not fit into the 50 steps"),
    "TopKAST": (TopKAST(total_steps=50), "every=100 does not fit into the 50 steps"),
    "SET": (SET(total_steps=50, every=50), "every=50 does not fit into the 50 steps"),
    "SNFS": (SNFS(total_steps=50, every=60), "every=60 does not fit"),
    "MEST": (MEST(total_steps=50, every=60), "every=60 does not fit"),
    "DynSparse": (DynSparse(total_steps=50, every=50), "every=50 does not fit into the 50"),
}


def attach(method):
    layer = Linear(16, 16, blocksize=4, density=0.5)
    method.attach(layer, torch.optim.SGD(layer.parameters()))


@pytest.mark.parametrize("name", IDLE)
def test_a_run_that_will_move_nothing_warns_when_it_begins(name):
    method, reason = IDLE[name]
    with pytest.warns(UserWarning, match=f"{name} will not move any block: {reason}"):
        attach(method)


@pytest.mark.parametrize(
    "method",
    [Static(), SET(total_steps=50, every=49), GMP(density=0.1, total_steps=9, every=100)],
    ids=["static", "set", "gmp"],
)
def test_others_do_not(method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(method)
