"""Reads a command: its words, where and with what it runs, and where its loss is found."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slaq.config.section import Section, described
from slaq.config.values import CommandWork, Work
from slaq.core.errors import SlaqError

#: What a job with a command may have.
COMMAND_KEYS = ("loss_pattern", "loss_file", "loss_column", "cwd", "env", "trains")

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def read_commands(
    section: Section, grid: list[dict[str, Any]], check_pattern: Callable[[str], object]
) -> list[Work]:
    """Return the command with each combination of parameters; nothing where it is no command."""
    words = _words(section)
    cwd = section.path("cwd") or section.notes.path.parent
    if not cwd.is_dir():
        section.note("cwd", f"there is no folder {cwd}", "make it, or name another")
    env = _env(section)
    pattern, file = section.text("loss_pattern"), section.text("loss_file")
    column = section.text("loss_column")
    if pattern is not None:
        try:
            check_pattern(pattern)
        except SlaqError as error:
            section.notes.add_error((*section.place, "loss_pattern"), error)
        if file is not None:
            section.note("loss_file", "there are both loss_pattern and loss_file", "give one of them")
    if column is not None and file is None:
        section.note("loss_column", "loss_column is there without loss_file", "name the file: loss_file")
    trains = section.take("trains", "true or false", bool)
    if trains is False and (pattern is not None or file is not None):
        section.note("trains", "this job has a loss and does not train", "remove trains, or the loss")
    if words is None:
        return []
    _check_placeholders(section, words, grid)
    _check_program(section, words[0], cwd, env)
    work = CommandWork(
        argv=tuple(words),
        cwd=cwd.resolve(),
        env=env,
        loss_pattern=pattern,
        loss_file=None if file is None else Path(file),
        loss_column=column,
        trains=trains is not False,
    )
    return [replace(work, argv=_filled(words, parameters)) for parameters in grid]


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
        section.note("command", "command is no list of words", f"give {wanted}")
        return None
    return list(value)


def _env(section: Section) -> dict[str, str]:
    value = section.take("env", "a table of texts", dict) or {}
    for name, text in value.items():
        if not isinstance(text, str) or not name or "=" in name or "\0" in name + text:
            section.notes.add(
                (*section.place, "env", name), f"{name} in env is {described(text)}", "give a text in quotes"
            )
            return {}
    return dict(value)


def _check_placeholders(section: Section, words: list[str], grid: list[dict[str, Any]]) -> None:
    """Note parameters that the command does not use, and values that do not fit into a command."""
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    for name, value in (item for parameters in grid for item in parameters.items()):
        place = (*section.place, "parameters", name)
        if name not in used:
            section.notes.add(
                place, f"the command does not use the parameter {name}", f"write {{{name}}} where it goes"
            )
        elif not isinstance(value, str | int | float):
            section.notes.add(place, f"{name} is {described(value)}", "give a text or a number")


def _filled(words: list[str], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with {name} replaced by the parameter of that name."""

    def value(match: re.Match[str]) -> str:
        return str(parameters[match[1]]) if match[1] in parameters else match[0]

    return tuple(_PLACEHOLDER.sub(value, word) for word in words)


def _check_program(section: Section, program: str, cwd: Path, env: Mapping[str, str]) -> None:
    if _PLACEHOLDER.search(program):
        return
    if os.sep in program:
        if not os.access(cwd / program, os.X_OK) or not (cwd / program).is_file():
            section.note("command", f"{program} is no executable file", "check the path, or chmod +x it")
    elif shutil.which(program, path=env.get("PATH", os.environ.get("PATH", os.defpath))) is None:
        section.note("command", f"there is no program {program!r} on the PATH", "check it, or give its path")
