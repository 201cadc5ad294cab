"""Models people have: read them, make them sparse, keep them in files, serve them."""

from sparsetile.models._checkpoint import Checkpoint, Entry, read_checkpoint
from sparsetile.models._from_dense import Converted, from_dense
from sparsetile.models._from_dense_report import LayerReport, Report
from sparsetile.models._inspect import inspect
from sparsetile.models._inspect_report import InspectedLayer, Inspection
from sparsetile.models._load_into import Loaded, load_into
from sparsetile.models._pretrained import from_pretrained, save_pretrained
from sparsetile.models._pretrained_dense import to_dense_checkpoint

__all__ = [
    "Checkpoint",
    "Converted",
    "Entry",
    "InspectedLayer",
    "Inspection",
    "LayerReport",
    "Loaded",
    "Report",
    "from_dense",
    "from_pretrained",
    "inspect",
    "load_into",
    "read_checkpoint",
    "save_pretrained",
    "to_dense_checkpoint",
]
