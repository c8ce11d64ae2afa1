"""How Sphinx builds these pages."""

from importlib.metadata import version as version_of

project = "slaq"
author = "the slaq authors"
copyright = author
release = version = version_of("slaq")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = "slaq"
