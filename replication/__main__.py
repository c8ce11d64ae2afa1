"""Runs the experiments and writes the report: `make replicate`, or `python -m replication --help`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from replication.experiment import (
    FULL_SEEDS,
    HERE,
    QUICK_HOME,
    QUICK_SEEDS,
    Experiment,
    Settings,
    SkippedError,
    choose,
    experiments,
)
from replication.records import Record, carry_out
from replication.report import comparisons, compose, readme_with, write
from slaq import SlaqError

README = HERE.parent / "README.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        chosen = choose(options.only)
        if options.list:
            for experiment in chosen:
                print(f"{experiment.name:<16} {', '.join(experiment.headings)}")
            return 0
        if options.check and (options.quick or options.report_only):
            raise SlaqError("--check compares full runs: leave out --quick and --report-only")
        if options.data is not None and not options.data.is_dir():
            raise SlaqError(f"--data names {options.data}, which is no folder")
    except SlaqError as error:
        print(f"replication: {error}", file=sys.stderr)
        return 2
    settings = Settings(
        quick=options.quick,
        seeds=QUICK_SEEDS if options.quick else FULL_SEEDS,
        data=options.data,
        python=options.python,
    )
    home = QUICK_HOME if options.quick else HERE
    if options.check:
        return _check(chosen, dict(_run(chosen, settings)))
    for _, record in () if options.report_only else _run(chosen, settings):
        record.write(home / "results")
    publish(home)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m replication", description="Rerun the paper's evaluation and write the report."
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes, to see that everything works; writes to build/replication",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="one experiment; may be given several times",
    )
    parser.add_argument("--list", action="store_true", help="list the experiments and what they make")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="outside data: docs/replication.md says what"
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        metavar="PATH",
        help="the interpreter that runs ordinary scripts, which has their frameworks",
    )
    parser.add_argument("--report-only", action="store_true", help="make the report anew from kept results")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run in full, change nothing, and exit with 1 where a key figure is worse than the committed one",
    )
    return parser


def publish(home: Path) -> None:
    """Make the report from the results in `home`; the committed ones also make the README's table."""
    known = list(experiments().values())
    records = {each.name: record for each in known if (record := _kept(each, home / "results"))}
    chapters = compose(known, records)
    write(chapters, home)
    if home == HERE:
        text = README.read_text(encoding="utf-8")
        README.write_text(readme_with(text, comparisons(chapters)), encoding="utf-8")


def _kept(experiment: Experiment, folder: Path) -> Record | None:
    """Return the results of an experiment; None, with a word of it, where another version of it wrote them."""
    record = Record.read(folder, experiment.name)
    if record is not None:
        try:
            experiment.sections(record.results)
        except (KeyError, IndexError, TypeError):
            print(
                f"replication: {folder / experiment.name}.json is of another version of the experiment and left "
                f"out; run it again: --only {experiment.name}",
                file=sys.stderr,
            )
            return None
    return record


def _run(chosen: Sequence[Experiment], settings: Settings) -> Iterator[tuple[str, Record]]:
    """Run the experiments one after another; those that cannot run are named and left out."""
    console = Console(stderr=True)
    for experiment in chosen:
        with _progress(console, experiment.name) as progress:
            try:
                record = carry_out(experiment, replace(settings, progress=progress))
            except SkippedError as error:
                console.print(f"{experiment.name}: skipped, {error}", highlight=False, soft_wrap=True)
                continue
        yield experiment.name, record


@contextmanager
def _progress(console: Console, name: str) -> Iterator[Callable[[float], None]]:
    """Show a bar for one experiment, where there is a terminal to show it on."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=1.0)

        def progress(share: float) -> None:
            bar.update(task, completed=share)

        yield progress
        bar.update(task, completed=1.0)


def _check(chosen: Sequence[Experiment], fresh: dict[str, Record]) -> int:
    """Name every key figure that has got worse than the committed results allow; return the exit status."""
    worse = compared = 0
    for experiment in chosen:
        if experiment.name not in fresh:
            continue
        committed = _kept(experiment, HERE / "results")
        if committed is None:
            print(f"{experiment.name}: there are no committed results to compare with")
            continue
        before = {figure.name: figure for figure in experiment.key_figures(committed.results)}
        for figure in experiment.key_figures(fresh[experiment.name].results):
            if figure.name not in before:
                continue
            compared += 1
            if figure.worse_than(before[figure.name]):
                worse += 1
                kept = before[figure.name].value
                print(
                    f"{experiment.name}: {figure.name} is {figure.value['mean']:.4g}, "
                    f"committed {kept['mean']:.4g} ({kept['low']:.4g} to {kept['high']:.4g})"
                )
    print(f"{compared} key figures compared, {worse} worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
