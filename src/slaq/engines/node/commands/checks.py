"""Checks of a command before anything of it is started."""

import os
from collections.abc import Sequence
from pathlib import Path

from slaq.core.errors import CommandError, LossSourceError
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.regular_file import open_regular
from slaq.jobs.executable import find_executable
from slaq.jobs.loss_pattern import checked_pattern


def check_words(words: Sequence[str]) -> None:
    """Raise CommandError for words that no system can execute."""
    if not words or not words[0]:
        raise CommandError("the command is empty", "name a program, as in ['python', 'train.py']")
    if any("\0" in word for word in words):
        raise CommandError("the command holds a NUL character", "remove it")


def checked(spec: CommandSpec) -> Path:
    """Return where the command is to run; raises where it cannot."""
    check_words(spec.argv)
    if any("\0" in text for text in (*spec.env, *spec.env.values())):
        raise CommandError("the environment of the command holds a NUL character", "remove it")
    if any("=" in name or not name for name in spec.env):
        raise CommandError("a variable of the environment has '=' in its name, or no name", "correct it")
    cwd = Path.cwd() if spec.cwd is None else spec.cwd.absolute()
    # What another user can see and run, only that user can tell.
    if spec.run_as is None:
        if not cwd.is_dir():
            raise CommandError(f"{cwd} is not a directory", "create it, or give another cwd")
        find_executable(spec.argv[0], cwd, {**(os.environ if spec.inherit_env else {}), **spec.env})
    if spec.loss_pattern is not None and spec.loss_file is not None:
        raise LossSourceError("there is both a loss pattern and a loss file", "give one of them")
    if spec.loss_pattern is not None:
        checked_pattern(spec.loss_pattern)
    try:
        spec.directory.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_regular(spec.log, flags=os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=0o644))
    except OSError as error:
        raise CommandError(
            f"the job's files cannot be written ({error})", "check directory and log"
        ) from None
    return cwd
