"""How the pages are built, and which of their examples run."""

import sparsetile

project = "sparsetile"
author = "The sparsetile developers"
copyright = author
version = release = sparsetile.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.doctest",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "_static"]

html_theme = "furo"
html_title = f"sparsetile {release}"

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Room doors say what is public with __all__, in the order a reader wants.
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "special-members": "__matmul__, __rmatmul__"}
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # a dataclass field is described once, by its class
napoleon_use_rtype = False
# Fields named as a builtin (`bytes`) stand in several classes; no page links to one by that name.
suppress_warnings = ["ref.python"]
default_role = "code"  # docstrings are Google's, with Markdown's single backticks

# Docstrings are run by pytest; here run the pages.
doctest_test_doctest_blocks = ""
doctest_global_setup = """
import os, tempfile
import torch
_back, _folder = os.getcwd(), tempfile.TemporaryDirectory()
os.chdir(_folder.name)
torch.manual_seed(0)
"""
doctest_global_cleanup = """
os.chdir(_back)
_folder.cleanup()
"""


def run_python_blocks(app, doctree):
    """Every fence marked `python` runs: as a session if it has prompts, else as a script."""
    for block in doctree.findall(lambda node: node.tagname == "literal_block"):
        if block.get("language") == "python" and "testnodetype" not in block:
            session = block.astext().lstrip().startswith(">>>")
            block["testnodetype"] = "doctest" if session else "testcode"
            block["groups"] = ["default"]


def setup(app):
    app.connect("doctree-read", run_python_blocks)
