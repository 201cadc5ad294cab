"""Settings of `sparsetile train`: limits, config files, and whose word counts."""

from pathlib import Path

import pytest

from sparsetile.bench._errors import CommandError
from sparsetile.bench.pretrain import OPTIONS, PRESETS, Settings, check, choose
from sparsetile.bench.pretrain._config_file import read_config, write_config
from sparsetile.bench.pretrain._methods import METHODS, method_of
from support_pretrain import tiny


def file_with(folder, text):
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_written_config_gives_the_same_settings(tmp_path):
    settings = tiny(tmp_path, prune_ratio=0.25, blocksize="4x2", compile=True, lr=1e-30)
    write_config(tmp_path / "config.toml", settings)
    assert choose({}, config=tmp_path / "config.toml", resume=False) == settings


def test_every_option_stands_in_the_written_config(tmp_path):
    write_config(tmp_path / "config.toml", Settings())
    written = (tmp_path / "config.toml").read_text()
    assert all(name.replace("_", "-") in written for name in OPTIONS)


def test_paths_with_quotes_and_backslashes_are_kept(tmp_path):
    odd = tmp_path / 'a "b" \\ ü'
    write_config(tmp_path / "config.toml", Settings(output=odd))
    assert read_config(tmp_path / "config.toml")["output"] == odd


def test_typed_wins_over_file_and_file_over_defaults(tmp_path):
    file = file_with(
        tmp_path, 'preset = "tiny"\nblocksize = 8\nsteps = 7\nlr = 1\ntext = ["a.txt", "b.txt"]\n'
    )
    settings = choose({"steps": 8}, config=file, resume=False)
    assert (settings.preset, settings.steps, settings.lr) == ("tiny", 8, 1.0)
    assert settings.block == (8, 8)
    assert settings.text == (Path("a.txt"), Path("b.txt"))
    assert settings.batch == Settings().batch


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prune_ratio = 0.5", r"unknown key 'prune_ratio'; did you mean prune-ratio\? Allowed are"),
        ("colour = 1", r"unknown key 'colour'; Allowed are preset, objective"),
        ("steps = 1.5", r"steps = 1.5: must be a whole number, is a number; .* --steps"),
        ("steps = true", "steps = True: must be a whole number, is true or false"),
        ("lr = '1e-3'", "lr = '1e-3': must be a number, is a string"),
        ("compile = 1", "compile = 1: must be true or false, is a whole number"),
        ("text = 'a.txt'", "text = 'a.txt': must be a list of strings, paths, is a string"),
        ("text = [1]", "must be a list of strings, paths, is a list"),
        ("blocksize = 4.5", "blocksize = 4.5: must be a string, is a number"),
        ("blocksize = 'big'", "blocksize = 'big': give sides from 1 to 4096"),
        ("density = 0.0", "density = 0.0: must be above 0 and at most 1"),
        ("lr = nan", "lr = nan: must be at least 0"),
        ("weight-decay = inf", "weight-decay = inf: must be at least 0"),
        ("method = 'magic'", "method = 'magic': must be one of dense, static"),
        ("[model]\nlayers = 2", "unknown key 'model'"),
        ("steps = ", "is not valid TOML"),
    ],
)
def test_mistake_in_a_config_file_is_named(tmp_path, text, message):
    file = file_with(tmp_path, text)
    with pytest.raises(CommandError, match=message) as raised:
        read_config(file)
    assert str(file) in str(raised.value)


def test_config_file_that_is_not_there(tmp_path):
    with pytest.raises(CommandError, match=r"--config .*none.toml: cannot be read \(No such"):
        read_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 2.0}, "--density 2.0: must be above 0 and at most 1"),
        ({"steps": 0}, "--steps 0: must be at least 1"),
        ({"blocksize": "0"}, "--blocksize 0: give sides from 1"),
        (
            {"preset": "tiny", "heads": 3},
            "--width 128 and --heads 3: .* take --heads 2 or 4, or --width 129",
        ),
        ({"preset": "tiny", "blocksize": "4x256"}, "--blocksize 4x256: must be at most the width"),
        ({"method": "magic"}, "--method magic: must be one of dense"),
        ({"prune_ratio": -1.0}, "--prune-ratio -1.0: must be at least 0 and at most 1"),
        ({"method": "mest", "prune_ratio": 0.5}, "--method mest has no such option; .* rigl"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_flag(options, message):
    with pytest.raises(CommandError, match=message):
        check(Settings(**options))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_consistent(preset):
    check(Settings(preset=preset))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "dense"])
def test_every_method_gets_the_options_it_has(name):
    method = method_of(Settings(method=name, steps=100, every=7, seed=5))
    assert type(method).__name__.lower() == name
    if name != "static":
        assert method.seed == 5
        assert [step for step in range(1, 15) if method.clock.due(step)] == [7, 14]


def test_dense_has_no_method():
    assert method_of(Settings(method="dense")) is None


def test_prune_ratio_reaches_the_method():
    assert method_of(Settings(prune_ratio=0.25)).amount.count(step=0, nnzb=100) == 25
