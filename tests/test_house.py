"""The house is in order: doors, docstrings, imports, sizes, version, wheel, README."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import sparsetile

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sparsetile"
ROOMS = ["matrix", "machine", "plan", "ops", "nn", "models", "train", "prune", "bench"]
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What `import sparsetile` may add to `import torch`; all that is left out is imported when used.
LIGHT = {"sparsetile", "jaxtyping", "wadler_lindig", "numpy"}


def public_names():
    doors = ((room, import_module(f"sparsetile.{room}")) for room in ROOMS)
    return [
        pytest.param(room, name, id=f"{room}.{name}")
        for room, door in doors
        for name in getattr(door, "__all__", [])
    ]


def relative(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("room", ROOMS)
def test_room_names_each_public_thing_once(room):
    names = import_module(f"sparsetile.{room}").__all__
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("room", "name"), public_names())
def test_public_thing_has_a_docstring_with_an_example(room, name):
    thing = getattr(import_module(f"sparsetile.{room}"), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert ">>> " in (inspect.getdoc(thing) or "")


def test_front_door_names_exist():
    assert [name for name in sparsetile.__all__ if not hasattr(sparsetile, name)] == []


def test_modules_behind_a_door_are_private():
    assert [relative(path) for path in SOURCES if not path.name.startswith("_")] == []


@pytest.mark.parametrize("folder", ["src", "tests", "docs"])
def test_no_file_is_over_400_lines(folder):
    files = (ROOT / folder).rglob("*.py")
    assert [relative(f) for f in files if len(f.read_text("utf-8").splitlines()) > 400] == []


def test_only_the_bench_room_prints():
    printing = {
        relative(path)
        for path in SOURCES
        if "bench" not in path.relative_to(PACKAGE).parts and path.name != "__main__.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
    }
    assert printing == set()


def test_import_adds_little_to_torch():
    # A process of its own: this one has imported what tests need. Modules without a spec are made
    # by compiled code for its own use, not imported.
    code = (
        "import sys, torch; before = set(sys.modules); import sparsetile\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*(name for name in tops if getattr(sys.modules.get(name), '__spec__', None)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = {name for name in run.stdout.split() if name not in sys.stdlib_module_names}
    assert "sparsetile" in added
    assert added <= LIGHT


def test_version_is_written_once():
    version = re.escape(sparsetile.__version__)
    written = [relative(p) for p in SOURCES if re.search(f'"{version}"', p.read_text("utf-8"))]
    assert written == ["src/sparsetile/_version.py"]
    assert not re.search(r"^version *=", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)


def test_changelog_has_this_version():
    assert f"## {sparsetile.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_wheel_is_pure_python_and_typed(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"sparsetile-{sparsetile.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert "sparsetile/py.typed" in packed
    assert {str(path.relative_to(PACKAGE.parent)) for path in SOURCES} <= packed
    assert {name.split("/")[0].split("-")[0] for name in packed} == {"sparsetile"}


def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    assert len(blocks) >= 2
    for block in blocks:
        if not block.lstrip().startswith(">>>"):
            exec(compile(block, "README.md", "exec"), names)
            continue
        session = doctest.DocTestParser().get_doctest(block, names, "README.md", "README.md", 0)
        result = doctest.DocTestRunner().run(session, clear_globs=False)
        names.update(session.globs)
        assert result.failed == 0
