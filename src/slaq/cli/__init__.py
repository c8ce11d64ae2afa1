"""The `slaq` command: one module per verb, each exporting `command`."""
