"""How Sphinx builds these pages."""

from importlib.metadata import version as version_of

project = "slaq"
author = "the slaq authors"
copyright = author
release = version = version_of("slaq")

extensions = ["myst_parser"]
# No math extension: its renderer is fetched from the network by every reader. Formulas are plain text.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = "slaq"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
