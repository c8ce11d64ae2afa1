"""Reads a command: its words, and whether it can run."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slaq.config.section import Section, described
from slaq.config.values import CommandWork, Work
from slaq.core.errors import CommandError
from slaq.jobs.executable import find_executable

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def read_commands(section: Section, grid: list[dict[str, Any]], options: Mapping[str, Any]) -> list[Work]:
    """Return the command with each combination of parameters; an empty list if the command is invalid."""
    words = _words(section)
    cwd = Path(options.get("cwd", section.diagnostics.path.parent))
    if not cwd.is_dir():
        section.note("cwd", f"there is no folder {cwd}", "create it, or name another")
    if words is None:
        return []
    _check_placeholders(section, words, grid)
    _check_program(section, words[0], cwd, options.get("env", {}))
    return [CommandWork(argv=_filled(words, parameters)) for parameters in grid]


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


def _check_placeholders(section: Section, words: list[str], grid: list[dict[str, Any]]) -> None:
    """Note parameters that the command does not use, and values that do not fit into a command."""
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    for name, value in (item for parameters in grid for item in parameters.items()):
        place = (*section.place, "parameters", name)
        if name not in used:
            section.diagnostics.add(
                place, f"the command does not use the parameter {name}", f"write {{{name}}} where it goes"
            )
        elif not isinstance(value, str | int | float):
            section.diagnostics.add(place, f"{name} is {described(value)}", "give a text or a number")


def _filled(words: list[str], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with {name} replaced by the parameter of that name."""

    def value(match: re.Match[str]) -> str:
        return str(parameters[match[1]]) if match[1] in parameters else match[0]

    return tuple(_PLACEHOLDER.sub(value, word) for word in words)


def _check_program(section: Section, program: str, cwd: Path, env: Mapping[str, str]) -> None:
    if _PLACEHOLDER.search(program):
        return
    try:
        find_executable(program, cwd, {**os.environ, **env})
    except CommandError as error:
        section.note("command", error.found, error.remedy)
