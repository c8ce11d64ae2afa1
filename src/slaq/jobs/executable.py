"""Finds the program and the script that a command runs: one search, with its sentences, for every way to submit."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from slaq.core.errors import CommandError

#: The interpreter of a script, by what its name ends with.
INTERPRETERS = {
    **{".py": "python", ".sh": "bash", ".R": "Rscript", ".jl": "julia", ".pl": "perl", ".rb": "ruby"},
    ".js": "node",
}
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|(ba|da|z|k)?sh|Rscript|julia|perl|ruby|node")
#: Options after which there is no script, and options whose value is a word of its own.
_INSTEAD, _WITH_VALUE = ("-c", "-m", "-e", "-E", "-"), ("-W", "-X", "-o", "-t", "-p")


def script_in(words: Sequence[str]) -> str | None:
    """Return the script that a command has a known interpreter run; None where there is none to be seen."""
    if not words or not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return None
    rest = iter(words[1:])
    for word in rest:
        if word in _INSTEAD:
            return None
        if not word.startswith("-"):
            return word if os.path.splitext(word)[1] in INTERPRETERS else None
        if word in _WITH_VALUE:
            next(rest, None)
    return None


def check_script(words: Sequence[str], cwd: Path) -> None:
    """Raise CommandError for a command whose interpreter would find no script."""
    script = script_in(words)
    if script is not None and not (cwd / script).exists():
        raise CommandError(f"there is no file {cwd / script}", "check the path of the script")


def find_executable(program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return the path of a program, as a command that starts in `cwd` with these variables finds it.

    Raises CommandError if there is none.
    """
    if os.sep in program:
        path = cwd / program
        if not path.is_file():
            raise CommandError(f"there is no file {path}", "check the path")
        if not os.access(path, os.X_OK):
            interpreter = INTERPRETERS.get(path.suffix)
            remedy = f"type -- {interpreter} {program}" if interpreter else "put its interpreter first"
            raise CommandError(f"{path} is not executable", f"{remedy}, or run chmod +x {path}")
        return str(path)
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None and (cwd / program).is_file():
        interpreter = INTERPRETERS.get(os.path.splitext(program)[1])
        raise CommandError(
            f"{program!r} is a file in {cwd} and no program on the PATH",
            f"type -- {interpreter} {program}" if interpreter else f"type ./{program}",
        )
    if found is None:
        raise CommandError(f"there is no program {program!r} on the PATH", "check its name, or give its path")
    return found
