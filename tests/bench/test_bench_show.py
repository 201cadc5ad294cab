import io

from rich.console import Console

from sparsetile.bench import _bench_show
from sparsetile.bench._bench_row import row_of
from sparsetile.bench._bench_show import Cells, result_table, roof_text
from support_bench import FACTS, ROOF, case, timed


def rows(one=None, peers=("sparsetile", "torch-dense", "numba"), roof=ROOF):
    return [
        row_of(one or case(), timed(peer) if peer != "numba" else timed(peer, rounds=0,
               verdict="not installed"), FACTS, roof)
        for peer in peers
    ]  # fmt: skip


def text_of(table):
    out = io.StringIO()
    Console(file=out, width=200).print(table)
    return out.getvalue()


def test_the_table_names_each_cell_once_and_every_peer():
    text = text_of(result_table(rows() + rows(case(n=9))))
    assert text.count("linear 64×48 n=8") == text.count("linear 64×48 n=9") == 1
    assert text.count("sparsetile") == text.count("not installed") == 2
    assert "2.0×" in text


def test_a_result_stands_beside_its_bound():
    (row,) = rows(peers=["sparsetile"])
    text = text_of(result_table([row]))
    assert f"{row['gflops'] / row['limit']:.0%} {row['bound']}" in text


def test_without_a_roofline_the_bound_is_left_out():
    assert "fma" not in text_of(result_table(rows(roof=None)))


def test_the_roofline_is_told_on_one_line():
    text = roof_text(("float32", 1), ROOF)
    assert text == (
        "roofline, float32, 1 thread: fma 100 GFLOP/s; "
        "read from L1 400, L2 80, L3 50, memory 20.0 GB/s"
    )
    assert "not measured" in roof_text(("float32", 2), None)


def test_off_a_terminal_each_timed_cell_is_a_line(capsys):
    with Cells(3) as cells:
        cells.show(1, case(), [])
        cells.show(2, case(), rows())
        cells.show(3, case(n=9), [row_of(case(), timed(rounds=0, verdict="no luck"), FACTS, None)])
    first, second = capsys.readouterr().err.splitlines()
    assert "linear 64×48 n=8 blocks 4×4 d=0.5 float32 1 thread: 2.0× dense, faster" in first
    assert "2 of 3" in first
    assert "no luck" in second


def test_on_a_terminal_a_bar_moves(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(_bench_show.sys, "stderr", screen)
    with Cells(2) as cells:
        cells.show(1, case(), rows())
    assert "1 of 2" in screen.getvalue()
