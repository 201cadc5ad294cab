from math import isnan
from pathlib import Path

import pytest

from sparsetile.bench import _bench_row
from sparsetile.bench._errors import CommandError
from sparsetile.bench._plot_rows import by_setting, compared, file_name, read_rows
from support_plot import HEADER, bench_rows, write_rows

FEW = {"dtypes": ("float32",), "batches": (64,), "blocks": ((4, 4),), "densities": (0.125, 1.0)}


def read(tmp_path, rows, header=HEADER):
    return read_rows([write_rows(tmp_path / "out.csv", rows, header)])


def test_the_model_has_the_columns_of_the_bench():
    assert tuple(HEADER) == _bench_row.COLUMNS


def test_rows_are_read_with_their_types(tmp_path):
    row = next(row for row in read(tmp_path, bench_rows(**FEW)) if row.peer == "sparsetile")
    assert (row.m, row.block, row.density, row.threads) == (4096, (4, 4), 0.125, 1)
    assert row.dense_ratio > 1
    assert row.isa == "avx512"


def test_a_peer_that_cannot_has_no_numbers_and_its_reason(tmp_path):
    rows = read(tmp_path, bench_rows(**FEW | {"dtypes": ("bfloat16",)}))
    failed = [row for row in rows if row.peer == "torch-csr"]
    assert {row.verdict for row in failed} == {"no bfloat16"}
    assert all(isnan(row.median_us) and isnan(row.dense_ratio) for row in failed)


def test_a_row_without_stored_blocks_is_read(tmp_path):
    rows = [row | ({"nnzb": ""} if row["peer"] == "torch-csr" else {}) for row in bench_rows(**FEW)]
    assert {row.nnzb for row in read(tmp_path, rows) if row.peer == "torch-csr"} == {0}


def test_the_later_of_two_measurements_counts(tmp_path):
    first = write_rows(tmp_path / "1.csv", bench_rows(**FEW, seed=1))
    second = write_rows(tmp_path / "2.csv", bench_rows(**FEW, seed=2))
    assert read_rows([first, second]) == read_rows([second])


def test_rows_come_in_the_order_a_reader_wants(tmp_path):
    rows = read(tmp_path, reversed(list(bench_rows(dtypes=("bfloat16", "float32")))))
    ours = compared(rows)
    assert [s.dtype for s in by_setting(rows)] == ["float32", "bfloat16"]
    assert [row.n for row in ours[:36]] == sorted(row.n for row in ours[:36])
    assert [row.density for row in ours[:4]] == [0.03125, 0.125, 0.5, 1.0]


def test_file_names_tell_apart_what_differs(tmp_path):
    rows = [
        *bench_rows(op="linear+grad", **FEW),
        *(row | {"isa": "avx2"} for row in bench_rows(**FEW)),
        *(row | {"cpu": "Another"} for row in bench_rows(**FEW)),
    ]
    settings = list(by_setting(read(tmp_path, rows)))
    names = [file_name(s, settings) for s in settings]
    assert len(set(names)) == len(names) == 3
    assert "linear-grad-float32-4096x4096-1t-avx512-machine2" in names


@pytest.mark.parametrize("missing", ["density", "dense_ratio", "cpu"])
def test_a_missing_column_is_named(tmp_path, missing):
    header = [name for name in HEADER if name != missing]
    with pytest.raises(CommandError, match=f"has no column {missing};.*sparsetile bench"):
        read(tmp_path, bench_rows(**FEW), header)


def text_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty; .*make one with `sparsetile bench"),
        (",".join(HEADER) + "\n", "has a header and no rows"),
        ("name,age\nAnn,7\n", "its columns are name, age, …; .*CSV of `sparsetile bench`"),
        (b"\xff\xfe\x00\x01\n", "is not a text file of columns"),
        ("\x89PNG\x00,\n", "sparsetile bench"),
        (",".join(HEADER) + "\nlinear,sparsetile\n", "line 2: m is 'empty'; it must be a whole"),
    ],
    ids=["empty", "header", "other", "binary", "nul", "short line"],
)
def test_what_is_no_benchmark_is_refused(tmp_path, content, says):
    with pytest.raises(CommandError, match=says):
        read_rows([text_file(tmp_path, content)])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"density": "half"}, "line 2: density is 'half'; it must be a number"),
        ({"n": "6.5"}, "line 2: n is '6.5'; it must be a whole number"),
        ({"dense_ratio": "inf"}, "line 2: dense_ratio is 'inf'; it must be a number of 0 or more"),
        ({"density": 0}, "line 2: .*density 0, .*above 0"),
        ({"density": 1.5}, "line 2: .*at most 1"),
        ({"r": 0}, "line 2: .*block 0×4"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path, change, says):
    rows = list(bench_rows(**FEW))
    rows[0] |= change
    with pytest.raises(CommandError, match=says):
        read(tmp_path, rows)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CommandError, match=r"none\.csv: cannot be read .*No such file"):
        read_rows([tmp_path / "none.csv"])


def test_rows_without_ours_beside_dense_are_refused(tmp_path):
    rows = [row for row in bench_rows(**FEW) if row["peer"] != "sparsetile"]
    with pytest.raises(CommandError, match=r"no row of sparsetile has a dense_ratio; .*--peers"):
        read(tmp_path, rows)
