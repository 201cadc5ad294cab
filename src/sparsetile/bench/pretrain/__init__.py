"""Pre-training of language models on text files: the work of `sparsetile train`."""

from sparsetile.bench.pretrain._choose import choose
from sparsetile.bench.pretrain._dry_run import describe
from sparsetile.bench.pretrain._pretrain import Outcome, pretrain
from sparsetile.bench.pretrain._settings import OPTIONS, PRESETS, Settings, check, flag

__all__ = [
    "OPTIONS",
    "PRESETS",
    "Outcome",
    "Settings",
    "check",
    "choose",
    "describe",
    "flag",
    "pretrain",
]
