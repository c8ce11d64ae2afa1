"""`slaq detect`: shows which losses slaq would find in what a script prints and writes."""

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from slaq.cli.display.say import pass_on, say
from slaq.cli.display.spans import SPAN
from slaq.core.errors import CommandError
from slaq.detection.choice import Candidate
from slaq.detection.lines import LineCutter, seen
from slaq.detection.pattern import MatchedLine, pattern_for
from slaq.detection.search import LossSearch

#: Lines that are kept to write a pattern from, and shown as examples; and bytes read at once.
MOST_LINES, SHOWN, PIECE = 2000, 3, 65536
#: Seconds between two looks at the files of a script that runs, and those that it has to end when it is told to.
LOOK, GRACE = 0.5, 5.0


class _DetectCommand(click.Command):
    """Takes note of a `--`: what stands behind it is run."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["runs"] = "--" in args
        return super().parse_args(ctx, args)


@click.command("detect", cls=_DetectCommand)
@click.option("--loss", "wanted", metavar="NAME", help="Look for the series of this name.")
@click.option("--for", "seconds", type=SPAN, metavar="DURATION", help="End the script after this time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("words", nargs=-1, required=True, metavar="FILE | -- COMMAND...")
@click.pass_context
def command(
    ctx: click.Context, wanted: str | None, seconds: float | None, as_json: bool, words: tuple[str, ...]
) -> None:
    """Show which losses slaq would find, without a service and without a job.

    FILE is what a script has printed (- for standard input), or a file of losses that slaq knows. Behind -- stands
    a script to run here: what it prints passes through to standard error, and files that it writes are looked at
    too. The exit status is 1 where no loss was found.

    \b
    slaq detect log.txt
    slaq detect --for 30s -- python train.py --lr 0.1
    """
    if not ctx.meta["runs"] and len(words) > 1:
        raise click.UsageError(
            f"give one file, or -- before a script to run: slaq detect -- {' '.join(words)}"
        )
    looked = _Looked(LossSearch(wanted))
    if ctx.meta["runs"]:
        _run(words, looked, seconds)
    else:
        _read(words[0], looked)
    looked.finish()
    report = looked.report(wanted)
    if as_json:
        from slaq.cli.input.connection_options import print_json

        print_json(report)
    else:
        _print(report)
    if not report["losses"]:
        ctx.exit(1)


@dataclass(slots=True)
class _Looked:
    """What was read, and what was found in it."""

    search: LossSearch
    cutter: LineCutter = field(default_factory=LineCutter)
    #: The last lines with any number of a series, and what stands in them; lines without are kept as they are.
    lines: list[tuple[int, bytes, dict[tuple[str, str], float]]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    total: int | None = None

    def take(self, piece: bytes) -> None:
        """Take in a piece of output."""
        for line in self.cutter.feed(piece):
            self._line(line)

    def finish(self) -> None:
        """Take in the end of the output."""
        for line in self.cutter.rest():
            self._line(line)
        self.search.finish()
        self.collect()

    def collect(self) -> None:
        """Take the losses that were found by now."""
        self.losses += [loss for loss, _ in self.search.losses()]
        self.total = self.search.total() or self.total

    def report(self, wanted: str | None) -> dict[str, Any]:
        """Return all that is to be shown."""
        chosen = self.search.chosen
        finite = [loss for loss in self.losses if math.isfinite(loss)]
        found: dict[str, Any] = {
            "series": None if chosen is None else chosen.key.name,
            "place": None if chosen is None else chosen.key.file or "the output",
            "losses": len(self.losses),
            "first": _plain(self.losses[:1]),
            "last": _plain(self.losses[-1:]),
            "lowest": min(finite, default=None),
            "total": self.total,
            "others": list(self.search.others()),
            "lines": self.search.lines,
            "matching": 0,
            "examples": [],
            "pattern": None,
        }
        return found if chosen is None or chosen.key.file else found | self._matching(chosen)

    def _matching(self, chosen: Candidate) -> dict[str, Any]:
        key = (chosen.key.name, chosen.key.place)
        matched = [MatchedLine(number, line, held[key]) for number, line, held in self.lines if key in held]
        others = [line for _, line, held in self.lines if key not in held]
        return {
            "matching": len(matched),
            "examples": [
                {"line": one.number, "text": seen(one.line).strip()[:200]} for one in matched[:SHOWN]
            ],
            "pattern": pattern_for(chosen.key.name, chosen.key.place, matched, others) if matched else None,
        }

    def _line(self, line: bytes) -> None:
        found = self.search.read_line(line)
        if len(self.lines) < MOST_LINES:
            self.lines.append((self.search.lines, line, {(one.name, one.place): one.value for one in found}))
        self.collect()


def _read(name: str, looked: _Looked) -> None:
    from slaq.engines.node.commands.folder_files import source_for

    path = Path(name)
    source = None if name == "-" else source_for(path.absolute(), since=0.0)
    if source is not None:
        while points := source.read(final=True):
            looked.search.read_points(name, points)
            looked.collect()
        return
    with sys.stdin.buffer if name == "-" else path.open("rb") as file:
        while piece := file.read(PIECE):
            looked.take(piece)


def _run(words: Sequence[str], looked: _Looked, seconds: float | None) -> None:
    """Run a script to its end, or for so long; what it prints passes through."""
    from slaq.engines.node.commands.loss_folder import LossFolder

    folder = LossFolder(Path.cwd())
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PYTHONUNBUFFERED": "1"} | dict(os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{words[0]!r} cannot be run ({error.strerror})", "check its name") from None
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    try:
        for piece in _pieces(process, deadline):
            if piece:
                # As if the script had been started without us: bars are drawn in place.
                pass_on(piece)
                looked.take(piece)
            for file, points in folder.read(final=False):
                looked.search.read_points(file, points)
            looked.collect()
    finally:
        _end(process)
        for _ in range(2):
            for file, points in folder.read(final=True):
                looked.search.read_points(file, points)
        folder.close()


def _pieces(process: subprocess.Popen[bytes], deadline: float) -> Iterator[bytes]:
    """Yield what a process prints as it comes, and nothing now and then; until it ends, or until a moment."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not selector.select(max(min(LOOK, deadline - time.monotonic()), 0.0)):
                yield b""
                continue
            piece = os.read(process.stdout.fileno(), PIECE)
            if not piece:
                return
            yield piece


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with its descendants in its session, unless it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    assert process.stdout is not None
    process.stdout.close()


def _plain(losses: Sequence[float]) -> float | str | None:
    """Return the one loss as JSON can hold it."""
    if not losses:
        return None
    return losses[0] if math.isfinite(losses[0]) else str(losses[0])


def _print(report: dict[str, Any]) -> None:
    if report["series"] is None:
        say(
            f"no loss was found in {report['lines']:,} lines; print 'loss: 0.5', call slaq.report(loss), or give "
            "--loss-pattern or --loss-file"
        )
        if report["others"]:
            say(f"numbers there are: {', '.join(report['others'])}; --loss NAME takes one of them")
        return
    total = f" of {report['total']}" if report["total"] else ""
    say(f"series    {report['series']!r} in {report['place']}")
    say(f"losses    {report['losses']}{total}: first {report['first']}, last {report['last']}")
    if report["others"]:
        say(f"also      {', '.join(report['others'])}")
    if report["matching"]:
        say(f"lines     {report['matching']} of {report['lines']} match, such as")
        for example in report["examples"]:
            say(f"          {example['line']}: {example['text']}")
    say(f"to name   --loss {_quoted(report['series'])}")
    if report["pattern"] is not None:
        say(f"pattern   --loss-pattern {_quoted(report['pattern'])}")


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
