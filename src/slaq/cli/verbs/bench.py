"""`slaq bench`: measures how fast the scheduler decides on this machine."""

import json
from typing import TYPE_CHECKING

import click

from slaq.bootstrap import live_policy_names
from slaq.cli.display.say import say

if TYPE_CHECKING:
    from slaq.simulation.rehearsal import Rehearsal

#: Jobs whose curves are fitted in the paper's way.
MOST_FITS = 30


@click.group("bench")
def command() -> None:
    """Measure how fast the scheduler decides."""


@command.command("decide")
@click.option("--jobs", type=click.IntRange(min=1), default=4000, show_default=True, help="Active jobs.")
@click.option(
    "--units", type=click.IntRange(min=1), default=16000, show_default=True, help="Units to hand out."
)
@click.option(
    "--policy",
    type=click.Choice(live_policy_names()),
    default="total-quality",
    show_default=True,
    help="The policy that divides the units.",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), help="Decisions to time.  [default: as many as fit into 5 s]"
)
@click.option(
    "--reference/--no-reference", default=True, show_default=True, help="Also time the paper's algorithm."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random jobs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def decide(
    jobs: int, units: int, policy: str, repeat: int | None, reference: bool, seed: int, as_json: bool
) -> None:
    """Time one full decision: read a loss per job, fit, compute gains, allocate, grant, and record the numbers.

    The reference is the same decision with scipy's curve_fit for each job and the paper's heap of units.
    """
    import numpy as np

    from slaq.bootstrap import make_policy
    from slaq.core.extras import needs
    from slaq.simulation.rehearsal import paper_reference, rehearse

    if reference:
        with needs("scipy"):
            import scipy.optimize  # noqa: F401
    rehearsal = rehearse(jobs, units, make_policy(policy), np.random.default_rng(seed))
    # Before any decision: how many are timed depends on the machine, and what the paper's way fits must not.
    histories = rehearsal.histories(MOST_FITS)
    taken = _timed(rehearsal, repeat)
    result: dict[str, object] = {
        "jobs": jobs,
        "units": units,
        "policy": policy,
        "decisions": len(taken),
        "median_ms": round(1e3 * float(np.median(taken)), 3),
        "p99_ms": round(1e3 * float(np.quantile(taken, 0.99)), 3),
        "peak_memory_mb": round(_peak_memory_mb(), 1),
    }
    if reference:
        paper = paper_reference(rehearsal, histories)
        result["reference_ms"] = round(1e3 * paper.seconds, 1)
        result["reference_scaled_from"] = {"fits": paper.fits, "units": paper.units}
    if as_json:
        say(json.dumps(result))
        return
    _describe(result)


def _timed(rehearsal: "Rehearsal", repeat: int | None, seconds: float = 5.0) -> list[float]:
    """Return the CPU seconds of each decision; one decision before them is not counted."""
    from time import process_time

    rehearsal.decide()
    taken: list[float] = []
    while len(taken) < repeat if repeat else (len(taken) < 3 or (sum(taken) < seconds and len(taken) < 1000)):
        began = process_time()
        rehearsal.decide()
        taken.append(process_time() - began)
    return taken


def _peak_memory_mb() -> float:
    import resource
    import sys

    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _describe(result: dict[str, object]) -> None:
    from rich.table import Table

    from slaq.cli.display.terminal import PlainConsole

    table = Table(
        title=f"One decision: {result['jobs']:,} jobs on {result['units']:,} units, {result['policy']}"
    )
    table.add_column("")
    table.add_column("CPU time", justify="right")
    table.add_row(f"median of {result['decisions']}", f"{result['median_ms']:,} ms")
    table.add_row("99th percentile", f"{result['p99_ms']:,} ms")
    if "reference_ms" in result:
        table.add_row(
            "the paper's algorithm (large cases scaled from a sample)", f"{result['reference_ms']:,} ms"
        )
    table.add_row("peak memory", f"{result['peak_memory_mb']:,} MB")
    PlainConsole().print(table)
