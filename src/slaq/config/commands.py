"""Reads a command: its words, and whether it can run."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slaq.config.section import Section, described
from slaq.config.values import CommandWork, Work
from slaq.core.errors import CommandError, GridError
from slaq.jobs.executable import check_script, find_executable
from slaq.jobs.grid import filled, not_given, not_used, placeholders
from slaq.jobs.options import waits


def read_commands(section: Section, grid: list[dict[str, Any]], options: Mapping[str, Any]) -> list[Work]:
    """Return the command with each combination of parameters; an empty list if the command is invalid."""
    words = _words(section)
    cwd = Path(options.get("cwd", section.diagnostics.path.parent))
    if not cwd.is_dir():
        section.note("cwd", f"there is no folder {cwd}", "create it, or name another")
    if words is None:
        return []
    _check_program(section, words[0], cwd, options.get("env", {}), templated=any(grid))
    if any(grid) and not _check_parameters(section, words, grid):
        return []
    commands = [filled(words, parameters) if any(grid) else tuple(words) for parameters in grid]
    if not waits(options):
        _check_scripts(section, commands, cwd)
    return [CommandWork(argv=words) for words in commands]


def _words(section: Section) -> list[str] | None:
    """Take the command as words: a list of texts, or one text cut as a shell would cut it."""
    wanted = 'a text, or a list such as ["python", "train.py"]'
    value = section.take("command", wanted, str, list)
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            section.note("command", f"command cannot be cut into words ({error})", "close the quotes")
            return None
    if value is None:
        return None
    if not value or not all(isinstance(word, str) for word in value) or not value[0]:
        section.note("command", "command is not a list of words", f"give {wanted}")
        return None
    return list(value)


def _check_parameters(section: Section, words: list[str], grid: list[dict[str, Any]]) -> bool:
    """Note what does not go together in a command and its parameters; return whether all does."""
    before = len(section.diagnostics)
    try:
        used = placeholders(words)
    except GridError as error:
        section.diagnostics.add_error((*section.place, "command"), error)
        return False
    for name in sorted(used - grid[0].keys()):
        section.diagnostics.add_error((*section.place, "command"), not_given(name))
    for name, value in (item for parameters in grid for item in parameters.items()):
        place = (*section.place, "parameters", name)
        if name not in used:
            section.diagnostics.add_error(place, not_used(name))
        elif not isinstance(value, str | int | float):
            section.diagnostics.add(place, f"{name} is {described(value)}", "give a text or a number")
    return len(section.diagnostics) == before


def _check_program(
    section: Section, program: str, cwd: Path, env: Mapping[str, str], *, templated: bool
) -> None:
    if templated and "{" in program:
        return
    try:
        find_executable(program, cwd, {**os.environ, **env})
    except CommandError as error:
        section.note("command", error.found, error.remedy)


def _check_scripts(section: Section, commands: Sequence[Sequence[str]], cwd: Path) -> None:
    """Note the first script that is not there."""
    try:
        for words in commands:
            check_script(words, cwd)
    except CommandError as error:
        section.note("command", error.found, error.remedy)
