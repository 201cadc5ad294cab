import pytest

from sparsetile.bench._errors import CommandError
from sparsetile.bench._text import pieces, read_text


def test_standard_library_is_the_same_text_each_time():
    assert read_text(limit=60_000) == read_text(limit=60_000)


def test_standard_library_text_leaves_out_tests_and_packages(tmp_path, monkeypatch):
    for folder in ("", "json", "test", "site-packages/other", "json/tests"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "a.py").write_text(f"# from {folder or 'top'}\n" * 2000)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    text = read_text()
    lines = set((text.train + text.held_out).split("\n"))
    assert lines == {"# from top", "# from json", ""}


def test_python_without_its_source_asks_for_files(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(CommandError, match="give longer files"):
        read_text()


def test_text_is_cut_at_a_line_and_nothing_is_lost(tmp_path):
    whole = "".join(f"line {i} of a text\n" for i in range(3000))
    (tmp_path / "a.txt").write_text(whole)
    text = read_text([tmp_path / "a.txt"], held_out=0.1)
    assert text.train + text.held_out == whole
    assert text.train.endswith("\n")
    assert 0.09 < len(text.held_out) / len(whole) < 0.11


def test_files_are_read_in_the_order_given(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name} line\n" * 2000)
    text = read_text([tmp_path / "b", tmp_path / "a"])
    assert text.train.startswith("b line")
    assert text.source == "b, a"


def test_text_without_line_ends_is_still_cut(tmp_path):
    (tmp_path / "a").write_text("x" * 30_000)
    assert len(read_text([tmp_path / "a"], held_out=0.1).held_out) == 3_000


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot read", id="missing"),
        pytest.param(b" \n\n ", "is empty", id="empty"),
        pytest.param(b"too short\n", "needs at least", id="short"),
        pytest.param(bytes(range(256)) * 100, "not look like UTF-8", id="binary"),
    ],
)
def test_bad_text_is_refused_with_a_way_out(tmp_path, content, says):
    path = tmp_path / "given.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=says):
        read_text([path])


def test_folder_is_refused_as_text(tmp_path):
    with pytest.raises(CommandError, match="cannot read"):
        read_text([tmp_path])


def test_pieces_join_to_the_text():
    text = "word and word\n" * 100_000
    cut = pieces(text)
    assert len(cut) > 1
    assert "".join(cut) == text
