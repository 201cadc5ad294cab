"""Models with sparse layers are compiled and exported whole, and compute the same."""

import jaxtyping
import pytest
import torch

from sparsetile.models import from_pretrained, save_pretrained
from sparsetile.nn import sparsify_
from support_transformers import bert, gpt2

MODELS = {"bert": (bert, {}), "gpt2": (gpt2, {"use_cache": False})}
CASES = [pytest.param(*case, id=name) for name, case in MODELS.items()]


@pytest.fixture
def untyped():
    # The type checkers of the tests are no part of the code that users compile.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def served(make, tmp_path):
    """A small model that came from a folder, its input, and what it computes."""
    torch.manual_seed(0)
    model = sparsify_(make(), density=0.5, blocksize=8, embeddings=True)
    model = from_pretrained(save_pretrained(model, tmp_path / "m"))
    ids = torch.randint(1, 64, (2, 10), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model, ids, model(input_ids=ids).logits


def operators(graph):
    return [str(node.target) for node in graph.nodes if "sparsetile" in str(node.target)]


@pytest.mark.parametrize("make, options", CASES)
def test_a_compiled_model_computes_the_same(make, options, untyped, tmp_path):
    model, ids, want = served(make, tmp_path)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        got = compiled(input_ids=ids, **options).logits
    assert torch.equal(got, want)
    assert len(graphs) == 1 and operators(graphs[0].graph)


@pytest.mark.parametrize("make, options", CASES)
def test_an_exported_model_computes_the_same_from_its_file_too(make, options, untyped, tmp_path):
    model, ids, want = served(make, tmp_path)
    inputs = {"input_ids": ids} | options
    with torch.no_grad():
        program = torch.export.export(model, (), inputs)
    torch.export.save(program, tmp_path / "model.pt2")
    for each in (program, torch.export.load(tmp_path / "model.pt2")):
        linear = [name for name in operators(each.graph) if "linear" in name]
        table = [name for name in operators(each.graph) if "embedding" in name]
        assert len(linear) >= 5 and table
        with torch.no_grad():
            assert torch.equal(each.module()(**inputs).logits, want)
