"""Settings of the documentation site; build it with ``sphinx-build -W docs site``."""

from actorgraph import __version__

project = "actorgraph"
author = "The actorgraph maintainers"
release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["style.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
# Pages also link to files outside of the site; tests/test_pages.py looks for them.
suppress_warnings = ["myst.xref_missing"]
# Docstrings are written for the terminal: a name in single backticks is code.
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_title = "actorgraph"
html_context = {"default_mode": "auto"}  # light or dark, as the reader has it
html_static_path = ["_static"]
html_css_files = ["site.css"]
smartquotes = False  # figures and code stand in tables, with their own quotes
html_show_sourcelink = False
html_sidebars = {"design": [], "performance": []}  # they have no pages beside them
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "show_prev_next": True}
