"""Finds the program that a command runs: the one search, with its sentences, of every way to submit a command."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from slaq.core.errors import CommandError


def find_executable(program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return the path of a program, as a command that starts in `cwd` with these variables finds it.

    Raises CommandError if there is none.
    """
    if os.sep in program:
        path = cwd / program
        if not path.is_file():
            raise CommandError(f"there is no file {path}", "check the path")
        if not os.access(path, os.X_OK):
            raise CommandError(
                f"{path} is not executable", f"run chmod +x {path}, or put its interpreter first"
            )
        return str(path)
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None and (cwd / program).is_file():
        raise CommandError(
            f"there is no program {program!r} on the PATH, only a file in {cwd}", f"type ./{program}"
        )
    if found is None:
        raise CommandError(f"there is no program {program!r} on the PATH", "check its name, or give its path")
    return found
