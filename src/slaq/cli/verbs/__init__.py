"""The verbs of `slaq`: one module each, exporting `command`."""
