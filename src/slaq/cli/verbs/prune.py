"""`slaq prune`: removes jobs that ended long ago, and old decisions."""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN
from slaq.cli.input.connection_options import JSON, connects, print_json

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("prune")
@click.option(
    "--older-than",
    type=SPAN,
    metavar="DURATION",
    help="Remove jobs that ended, and decisions made, longer ago than this, such as 30d.",
)
@click.option("--keep-jobs", type=click.IntRange(min=0), metavar="N", help="Keep the N jobs that ended last.")
@click.option("--keep-decisions", type=click.IntRange(min=1), metavar="N", help="Keep the last N decisions.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@JSON
@connects
def command(
    client: "Client",
    older_than: float | None,
    keep_jobs: int | None,
    keep_decisions: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove jobs that have ended, with their losses, logs and files, and old decisions. For admins.

    Jobs that have not ended are never removed. With both --older-than and --keep-jobs, only jobs that fit both
    are removed: old ones that are not among the N that ended last.

    \b
    slaq prune --older-than 30d --dry-run
    slaq prune --keep-jobs 1000 --keep-decisions 86400 --yes
    """
    if older_than is None and keep_jobs is None and keep_decisions is None:
        raise click.UsageError("nothing to remove; give --older-than, --keep-jobs or --keep-decisions")
    asked: dict[str, Any] = {
        "before": None if older_than is None else time.time() - older_than,
        "keep_jobs": keep_jobs,
        "keep_decisions": keep_decisions,
    }
    if not dry_run and not yes:
        _confirm(client.prune(**asked, dry_run=True))
    done = client.prune(**asked, dry_run=dry_run)
    if as_json:
        print_json(done)
    else:
        say(f"{'would remove' if dry_run else 'removed'} {_told(done)}")
    for job, reason in done.get("left", {}).items():
        say(f"slaq: the folder of {job} is not deleted yet: {reason}", err=True)


def _confirm(found: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("stdin is not a terminal, so nobody can confirm; add --yes or --dry-run")
    click.confirm(f"remove {_told(found)}?", abort=True, err=True)


def _told(found: dict[str, Any]) -> str:
    """Return what was or would be removed, in words."""
    counts = {"jobs": len(found["jobs"]), "losses": found["observations"], "decisions": found["decisions"]}
    parts = [f"{count:,} {what}" for what, count in counts.items()]
    return f"{', '.join(parts[:-1])} and {parts[-1]} ({found['bytes'] / 2**20:,.1f} MiB)"
