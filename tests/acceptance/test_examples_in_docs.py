"""Laws of the examples in README.md and docs/: they run as printed and print what is shown.

How examples are marked, so that a page needs no machinery of its own:

- Every ```python block runs; the blocks of one page share their names and one empty folder. A ```text block
  right below one shows what it prints.
- In a ```console block every line from `$ slaq`, `$ printf`, `$ cat` or `$ echo` runs in bash in that folder
  and exits with 0, and so does every such line of a ```bash block, without the prompt. Lines below a command
  show what it prints; `...` stands for anything.
- A block below `<!-- not run -->` is left alone.

What is shown is compared in docs/ only. `SLAQ_REFRESH_DOCS=1` in the environment writes it anew instead.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REFRESH = os.environ.get("SLAQ_REFRESH_DOCS") == "1"

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\$ )?((?:slaq|printf|cat|echo) (?:.*\\\n)*.*\n)", re.MULTILINE)
PROMPT = re.compile(r"^\$ ", re.MULTILINE)
SKIPPED = re.compile(r"<!-- not run -->\s*\Z")


@dataclass(frozen=True, slots=True)
class Example:
    """Something to run, and the stretch of the page that shows what it prints."""

    language: str
    code: str
    line: int
    #: None where the page shows nothing.
    shown: tuple[int, int] | None

    def run(self, folder: Path, names: dict[str, Any]) -> str:
        """Run it and return what it prints."""
        if self.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                # Blank lines first, so that a traceback names the line of the page.
                exec(compile("\n" * self.line + self.code, names["__file__"], "exec"), names)
            return printed.getvalue()
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.code],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=folder,
            env=os.environ | {"PATH": path},
        )
        assert done.returncode == 0, f"{self.code}exited with {done.returncode}:\n{done.stderr}"
        return done.stdout


def examples(text: str) -> Iterator[Example]:
    """Yield the examples of a page in order."""
    for block in FENCE.finditer(text):
        language, code = block[1], block[2]
        if SKIPPED.search(text[: block.start()]):
            continue
        line = text.count("\n", 0, block.start(2))
        if language == "python":
            shown = SHOWN.match(text, block.end())
            yield Example(language, code, line, shown.span(1) if shown else None)
        elif language in ("console", "bash"):
            yield from _commands(block, line)


def _commands(block: re.Match[str], line: int) -> Iterator[Example]:
    prompt, offset = "$ " if block[1] == "console" else None, block.start(2)
    for match in COMMAND.finditer(block[2]):
        if match[1] == prompt:
            begin = match.end()
            following = PROMPT.search(block[2], begin)
            end = following.start() if following else len(block[2])
            shows = prompt is not None and end > begin
            yield Example("bash", match[2], line, (offset + begin, offset + end) if shows else None)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example of a page runs, from top to bottom, and those in docs/ print what the page shows."""
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    names: dict[str, Any] = {"__name__": page.stem, "__file__": str(page)}
    wrong: list[tuple[int, int, str]] = []
    for example in examples(text):
        printed = example.run(tmp_path, names)
        if example.shown is not None and page.name != "README.md":
            start, end = example.shown
            if not checker.check_output(text[start:end], printed, flags):
                wrong.append((start, end, printed))
    if REFRESH and wrong:
        for start, end, printed in reversed(wrong):
            text = text[:start] + printed + text[end:]
        page.write_text(text, encoding="utf-8")
        return
    assert not wrong, "\n".join(
        f"{page.name} shows\n{text[start:end]}and the example prints\n{printed}"
        "(SLAQ_REFRESH_DOCS=1 in the environment writes it into the page)"
        for start, end, printed in wrong
    )


def test_the_pages_hold_examples() -> None:
    """The documentation shows both Python and commands, so that the law above has something to judge."""
    languages = {example.language for page in PAGES for example in examples(page.read_text(encoding="utf-8"))}
    assert languages == {"python", "bash"}
