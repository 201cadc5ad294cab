"""A benchmark's CSV as it could have been measured: a model of a machine, with seeded noise."""

import csv
import random

HEADER = (
    "op,peer,backend,kernel,m,k,n,r,c,density,nnzb,dtype,threads,median_us,p20_us,p80_us,min_us,"
    "cpu_us,gflops,peak_fraction,bound,dense_ratio,verdict,cpu,isa,versions,commit,command"
).split(",")
PEAKS = {"float32": 115.0, "bfloat16": 231.0, "float16": 115.0}
# Share of the peak: ours by the smaller side of a block; peers at any.
OURS = {1: 0.52, 2: 0.7, 4: 0.9, 8: 0.93, 16: 0.95, 32: 0.95, 64: 0.93}
PEERS = {"torch-dense": 0.85, "torch-csr": 0.16, "torch-bsr": 0.2, "scipy-bsr": 0.05}


def bench_rows(
    op="linear",
    dtypes=("float32", "bfloat16"),
    batches=(1, 64, 1024),
    blocks=((1, 1), (4, 4), (16, 16)),
    densities=(0.03125, 0.125, 0.5, 1.0),
    size=4096,
    threads=1,
    seed=0,
):
    """Rows of ours and of four peers for every cell."""
    noise = random.Random(seed)
    cells = [
        (dtype, n, block, density)
        for dtype in dtypes
        for n in batches
        for block in blocks
        for density in densities
    ]
    for dtype, n, block, density in cells:
        common = cell(op, dtype, n, block, density, size, threads)
        dense = seconds(common, "torch-dense", noise)
        for peer in ("sparsetile", *PEERS):
            if peer == "torch-bsr" and block == (1, 1):
                yield common | {"peer": peer, "verdict": "no blocks of 1×1"}
            elif peer not in ("sparsetile", "torch-dense") and dtype != "float32":
                yield common | {"peer": peer, "verdict": f"no {dtype}"}
            else:
                spent = dense if peer == "torch-dense" else seconds(common, peer, noise)
                yield common | timed(common, peer, spent, dense)


def cell(op, dtype, n, block, density, size, threads):
    """What all peers of a cell share."""
    nnzb = round(density * size / block[0] * size / block[1])
    return dict.fromkeys(HEADER, "") | {
        "op": op, "m": size, "k": size, "n": n, "r": block[0], "c": block[1],
        "density": density, "nnzb": nnzb, "dtype": dtype, "threads": threads,
        "cpu": "Some Processor 9000", "isa": "avx512", "versions": "sparsetile 0.1.0, torch 2.13.0",
        "commit": "0123456789", "command": f"sparsetile bench {op} --density 1,0.5",
    }  # fmt: skip


def seconds(common, peer, noise):
    """Time of the slower of computing and moving the weights, and a little overhead."""
    peak = PEAKS[common["dtype"]] * 1e9 * common["threads"]
    share = OURS[min(common["r"], common["c"])] if peer == "sparsetile" else PEERS[peer]
    flops = work(common, peer)
    width = 4 if common["dtype"] == "float32" else 2
    traffic = flops / 2 / common["n"] * (width + (4 if common["r"] == 1 else 0)) / 31e9
    return max(flops / (peak * share), traffic) * noise.uniform(0.98, 1.05) + 5e-6


def work(common, peer):
    """Floating point operations that count."""
    stored = common["nnzb"] * common["r"] * common["c"]
    dense = peer.startswith("torch-dense")
    return 2 * common["n"] * (common["m"] * common["k"] if dense else stored)


def timed(common, peer, spent, dense):
    """The columns of a peer that could do the cell."""
    ratio = dense / spent
    gflops = work(common, peer) / spent / 1e9
    fraction = gflops / PEAKS[common["dtype"]] / common["threads"]
    near = "within the noise" if peer != "torch-dense" else ""
    return {
        "peer": peer, "backend": "cpu", "kernel": "cpu:linear/panel",
        "median_us": spent * 1e6, "p20_us": spent * 0.99e6, "p80_us": spent * 1.02e6,
        "min_us": spent * 0.98e6, "cpu_us": spent * 1e6, "gflops": gflops,
        "peak_fraction": fraction, "bound": "fma" if common["n"] > 16 else "memory",
        "dense_ratio": ratio,
        "verdict": near if abs(ratio - 1) < 0.04 else ("faster" if ratio > 1 else "slower"),
    }  # fmt: skip


def write_rows(path, rows, header=HEADER):
    """Write rows as `sparsetile bench` does."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
