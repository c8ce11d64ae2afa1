"""Reads a TOML file as a whole: its text, for the lines of mistakes, and its values."""

import re
import tomllib
from pathlib import Path
from typing import Any

from slaq.config.section import Mistake
from slaq.core.errors import JobsFileError

_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and its values; raises JobsFileError where it is no TOML."""
    text = _text(path)
    return text, _parsed(path, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        mistake = Mistake(line=1, found="this is no text in UTF-8", remedy="give a TOML file")
        raise JobsFileError(str(path), [mistake]) from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = _LINE.search(str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        found = f"this is no TOML ({_LINE.sub('', str(error))})"
        mistake = Mistake(line=line, found=found, remedy="correct it; texts stand in quotes")
        raise JobsFileError(str(path), [mistake]) from None
