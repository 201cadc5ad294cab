"""Training with sparse weights whose pattern stays or moves."""

from sparsetile.train._budget import ByMeanMomentum, Change, Cubic, Keep, Overshoot, Stock
from sparsetile.train._bytes import Bytes, Memory, bytes_of
from sparsetile.train._constraint import EqualRows
from sparsetile.train._dynsparse import DynSparse
from sparsetile.train._film import PatternFilm
from sparsetile.train._flops import FlopCount, count_flops, transformer_flops
from sparsetile.train._gmp import GMP
from sparsetile.train._grow import uniform
from sparsetile.train._grow_gradient import ByGradient, ByMomentum
from sparsetile.train._itop import ITOP
from sparsetile.train._lr import sparse_lr
from sparsetile.train._mest import MEST
from sparsetile.train._method import Method
from sparsetile.train._records import Coverage, Update
from sparsetile.train._rigl import RigL
from sparsetile.train._room import Room
from sparsetile.train._schedule import Constant, Cosine, Evenly, Every, Never, Stepped, Within
from sparsetile.train._scores import MagnitudeAndGradient, block_l1, block_l2, block_max, signed
from sparsetile.train._set import SET
from sparsetile.train._snfs import SNFS
from sparsetile.train._srigl import SRigL
from sparsetile.train._static import Static
from sparsetile.train._supar import supar_groups, supar_init_
from sparsetile.train._topkast import TopKAST
from sparsetile.train._trainer import Trainer
from sparsetile.train._watch import LayerSnapshot, Snapshot, watch
from sparsetile.train._watch_board import TensorBoardLog
from sparsetile.train._watch_flops import FlopMeter
from sparsetile.train._watch_log import CsvLog, History
from sparsetile.train._young import AsPublished, OwnStepCount, Ramp

__all__ = [
    "GMP",
    "ITOP",
    "MEST",
    "SET",
    "SNFS",
    "AsPublished",
    "ByGradient",
    "ByMeanMomentum",
    "ByMomentum",
    "Bytes",
    "Change",
    "Constant",
    "Cosine",
    "Coverage",
    "CsvLog",
    "Cubic",
    "DynSparse",
    "EqualRows",
    "Evenly",
    "Every",
    "FlopCount",
    "FlopMeter",
    "History",
    "Keep",
    "LayerSnapshot",
    "MagnitudeAndGradient",
    "Memory",
    "Method",
    "Never",
    "Overshoot",
    "OwnStepCount",
    "PatternFilm",
    "Ramp",
    "RigL",
    "Room",
    "SRigL",
    "Snapshot",
    "Static",
    "Stepped",
    "Stock",
    "TensorBoardLog",
    "TopKAST",
    "Trainer",
    "Update",
    "Within",
    "block_l1",
    "block_l2",
    "block_max",
    "bytes_of",
    "count_flops",
    "signed",
    "sparse_lr",
    "supar_groups",
    "supar_init_",
    "transformer_flops",
    "uniform",
    "watch",
]
