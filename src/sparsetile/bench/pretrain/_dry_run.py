"""What a run would be: its model, layer by layer, and what it takes."""

from sparsetile import nn
from sparsetile.bench.pretrain._build import block_rate, config_for, model_for
from sparsetile.bench.pretrain._methods import DENSE, method_of
from sparsetile.bench.pretrain._report import bytes_text
from sparsetile.bench.pretrain._settings import Settings
from sparsetile.train import count_flops


def describe(settings: Settings) -> tuple[dict[str, str], nn.Summary]:
    """Build a model without reading the text, and say what training it would take.

    Args:
        settings: The run; its vocabulary is taken as full.

    Returns:
        Names and values for people, and the table of layers.

    Examples:
        >>> facts, layers = describe(Settings(preset="tiny", layers=1, width=32, vocabulary=300))
        >>> facts["model"]
        'GPT-2, 1 layers, width 32, 2 heads, 128 tokens a row, 300 different ones'
    """
    layers, width, heads = settings.size
    model = model_for(settings, config_for(settings, settings.vocabulary))
    size = nn.summary(model)
    flops = count_flops(
        model, sequence=settings.sequence, batch=settings.batch * settings.accumulate
    )
    method = method_of(settings)
    facts = {
        "model": f"{'GPT-2' if settings.objective == 'clm' else 'BERT'}, {layers} layers, width "
        f"{width}, {heads} heads, {settings.sequence} tokens a row, {settings.vocabulary:,} "
        "different ones",
        "parameters": f"{size.parameters:,} stored; its dense twin {size.dense_bytes // 4:,}",
        "method": settings.method,
        "learning rates": f"{block_rate(settings):.3g} of the block layers, "
        f"{settings.rest_lr:.3g} of the rest",
        "tokens": f"{settings.tokens_per_step:,} a step, "
        f"{settings.tokens_per_step * settings.steps:,} in {settings.steps:,} steps",
        "operations": f"{flops.total:.3g} a step, {flops.non_embedding:.3g} without the head",
        "weights, gradients, state": f"{bytes_text(model)}; activations come on top",
    }
    if method is not None and settings.method != DENSE:
        due = sum(method.clock.due(step) for step in range(1, settings.steps + 1))
        facts["method"] += f", {due} updates"
    return facts, size
