"""Valid files of every kind that `load` knows, as bytes, for tests that damage them."""

import torch

from sparsetile.matrix import BSR, save


def whole_files(folder):
    """One small matrix in every format: suffix and bytes."""
    A = BSR.random(12, 16, blocksize=4, density=0.5, seed=0)
    wanted = {suffix: A for suffix in (".mtx", ".mtx.gz", ".npz", ".pt", ".safetensors")} | {
        ".smtx": A.pattern,
        ".smtx.gz": A.pattern,
    }
    found = {}
    for suffix, content in wanted.items():
        save(content, folder / f"whole{suffix}")
        found[suffix, "own"] = (folder / f"whole{suffix}").read_bytes()
    dense = A.to_dense()
    for kind, tensor in {
        "coo": dense.to_sparse_coo(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((4, 4)),
        "bsc": dense.to_sparse_bsc((4, 4)),
        "strided": dense,
        "pattern": A.pattern,
    }.items():
        torch.save(tensor, folder / "whole.pt")
        found[".pt", kind] = (folder / "whole.pt").read_bytes()
    return A, found
