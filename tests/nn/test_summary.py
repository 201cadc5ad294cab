import torch
from torch import nn

from sparsetile.nn import Linear, sparsify_, summary


def model():
    return nn.Sequential(
        nn.Embedding(10, 64), Linear(64, 64, density=0.25), nn.LayerNorm(64), nn.Linear(64, 10)
    )


def test_rows_are_the_layers_in_order_and_the_rest():
    assert [row.name for row in summary(model()).rows] == ["0", "1", "3", "other parameters"]


def test_totals_are_those_of_the_model():
    net = model()
    result = summary(net)
    assert result.parameters == sum(p.numel() for p in net.parameters())
    stored = [*net.parameters(), *net.buffers()]
    assert result.bytes == sum(t.numel() * t.element_size() for t in stored)


def test_dense_bytes_are_those_of_the_dense_twin():
    net = model()
    expected = summary(net).dense_bytes
    net[1] = net[1].to_linear()
    assert sum(p.numel() * p.element_size() for p in net.parameters()) == expected


def test_ragged_layers_count_their_padding_as_stored():
    row = summary(Linear(5, 5, blocksize=4, density=1.0, bias=False)).rows[0]
    assert (row.parameters, row.dense_bytes) == (64, 100)


def test_tied_weights_are_counted_once_and_noted():
    net = nn.ModuleDict({"embed": nn.Embedding(16, 32), "head": nn.Linear(32, 16, bias=False)})
    net["head"].weight = net["embed"].weight
    rows = summary(net).rows
    assert [row.parameters for row in rows] == [512, 0]
    assert rows[1].note == "tied to embed"


def test_the_table_is_aligned_and_ends_with_the_total():
    lines = str(summary(model())).splitlines()
    assert lines[0].split()[:3] == ["layer", "shape", "block"]
    assert lines[-1].startswith("total")
    assert len(lines) == 8


def test_density_is_that_of_the_sparse_layers():
    net = sparsify_(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), density=0.25, blocksize=4)
    assert summary(net).density == 0.25


def test_html_has_a_row_for_each_layer():
    assert summary(model())._repr_html_().count("<tr>") == 6


def test_bfloat16_counts_two_bytes():
    net = nn.Linear(8, 8, bias=False).to(torch.bfloat16)
    assert summary(net).bytes == 128
