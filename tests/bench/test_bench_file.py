import pytest

from sparsetile.bench._bench_file import File
from sparsetile.bench._bench_row import COLUMNS, row_of
from sparsetile.bench._errors import CommandError
from support_bench import FACTS, ROOF, case, timed

PEERS = ["sparsetile", "torch-dense"]


def rows(one=None, peers=PEERS, facts=FACTS, **more):
    return [row_of(one or case(), timed(peer, **more), facts, ROOF) for peer in peers]


def places(facts=FACTS, peers=PEERS):
    return {peer: {name: facts[name] for name in ("cpu", "isa", "versions")} for peer in peers}


def test_a_cell_that_is_there_is_not_lacking(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows())
    again = File(path)
    assert not again.lacks(case(), PEERS, places())
    assert again.lacks(case(n=9), PEERS, places())
    assert again.lacks(case(density=1 / 3), PEERS, places())
    assert again.lacks(case(dtype="bfloat16"), PEERS, places())


def test_one_missing_peer_makes_a_cell_lacking(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows(peers=PEERS[:1]))
    assert File(path).lacks(case(), PEERS, places())
    assert not File(path).lacks(case(), PEERS[:1], places())


def test_density_is_found_again_however_it_is_written(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows(case(density=1 / 3)))
    assert not File(path).lacks(case(density=1 / 3), PEERS, places())


@pytest.mark.parametrize("verdict", ["not installed", "failed: no answer in 60 s"])
def test_what_another_run_may_change_is_tried_again(tmp_path, verdict):
    path = tmp_path / "a.csv"
    File(path).add(rows(verdict=verdict, rounds=0))
    assert File(path).lacks(case(), PEERS, places())


def test_rows_of_another_machine_stay_and_do_not_count(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows())
    other = FACTS | {"cpu": "another chip"}
    file = File(path)
    assert file.lacks(case(), PEERS, places(other))
    file.add(rows(facts=other))
    assert len(File(path)) == 4


def test_fresh_measures_again_and_replaces(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows())
    file = File(path, fresh=True)
    assert file.lacks(case(), PEERS, places())
    file.add(rows(seconds=5e-3))
    assert not file.lacks(case(), PEERS, places())
    assert path.read_text().count("5000") >= 2
    assert len(File(path)) == 2


def test_the_file_is_whole_after_every_cell_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.csv"
    file = File(path)
    file.add(rows())
    file.add(rows(case(n=9)))
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_path_rows_stay_in_memory():
    file = File(None)
    file.add(rows())
    assert len(file) == 2
    assert not file.lacks(case(), PEERS, places())


def test_a_file_of_something_else_is_refused_and_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(CommandError, match=r"its columns are not .* name another file"):
        File(path)
    assert path.read_text() == "a,b\n1,2\n"


def test_an_empty_file_is_begun(tmp_path):
    path = tmp_path / "a.csv"
    path.touch()
    File(path).add(rows())
    assert len(File(path)) == 2


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "a.csv"
    File(path).add(rows())
    path.write_text(path.read_text() + "linear,sparsetile\n")
    with pytest.raises(CommandError, match="line 4 has not"):
        File(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="cannot be read"):
        File(path)


def test_a_file_that_cannot_be_written_says_what_to_do(tmp_path):
    path = tmp_path / "gone" / "a.csv"
    with pytest.raises(CommandError, match=r"cannot be written .* make room or name another"):
        File(path).add(rows())
