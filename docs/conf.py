"""How Sphinx builds the documentation; ``make docs`` runs it with warnings as errors."""

from importlib import metadata

project = "Onceward"
project_copyright = "The Onceward developers"
release = version = metadata.version("onceward")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
myst_heading_anchors = 3

default_role = "py:obj"  # single backticks in docstrings name things of ours
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True  # a default by its name, not by all that is in it
python_use_unqualified_type_names = True
# `type[Source]` in a signature is the builtin; several classes here have a field of that name.
suppress_warnings = ["ref.python"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Onceward {release}"
html_copy_source = False
html_show_sourcelink = False
