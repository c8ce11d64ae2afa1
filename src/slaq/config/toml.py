"""Reads a TOML file: its values, and its text, in which the lines of mistakes are found."""

import re
import tomllib
from pathlib import Path
from typing import Any

from slaq.config.section import Mistake
from slaq.core.errors import JobsFileError

_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and its values; raises JobsFileError if the file is not valid TOML."""
    text = _text(path)
    return text, _parsed(path, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        mistake = Mistake(line=1, found="the file is not UTF-8 text", remedy="give a TOML file")
        raise JobsFileError(str(path), [mistake]) from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = _LINE.search(str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        found = f"not valid TOML ({_LINE.sub('', str(error))})"
        mistake = Mistake(line=line, found=found, remedy="correct it; put texts in quotes")
        raise JobsFileError(str(path), [mistake]) from None
