"""Which jobs a verb is about: those that are named, or all those of a group."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from slaq.cli.input.connection_options import COMPLETED_JOBS, client_for, complete_jobs
from slaq.core.errors import UnknownGroupError
from slaq.core.visible import visible

if TYPE_CHECKING:
    from slaq.client import Client


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the groups that begin with `incomplete`; none if the service does not answer at once."""
    try:
        with client_for(ctx.params.get("url"), ctx.params.get("token_file"), patience=0.0) as client:
            jobs, _ = client.last_jobs(COMPLETED_JOBS)
    except Exception:
        # A message would disturb the line that the user is typing.
        return []
    groups = dict.fromkeys(job["group"] for job in jobs if job["group"])
    return [CompletionItem(visible(group)) for group in groups if group.startswith(incomplete)]


#: Jobs that may be left out where a group is named.
JOBS_OR_GROUP = click.argument("jobs", metavar="JOB...", nargs=-1, shell_complete=complete_jobs)
GROUP = click.option(
    "--group", metavar="NAME", shell_complete=complete_groups, help="All jobs of this group, instead of JOB."
)
GROUP_OF = click.option("--user", metavar="NAME", help="Whose group it is, for admins.  [default: yourself]")


def jobs_or_group(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb JOB..., --group and --user."""
    return JOBS_OR_GROUP(GROUP(GROUP_OF(function)))


def check_selection(jobs: tuple[str, ...], group: str | None, user: str | None) -> None:
    """Refuse to act on nothing, or on jobs that are chosen in two ways."""
    if not jobs and group is None:
        raise click.UsageError("there is no JOB; name one, or a group by --group")
    if jobs and group is not None:
        raise click.UsageError("JOB and --group exclude each other; give only one of them")
    if user is not None and group is None:
        raise click.UsageError("--user says whose group it is; give --group too")


def jobs_of(client: "Client", group: str, user: str | None) -> list[dict[str, Any]]:
    """Return the jobs of a group; raises UnknownGroupError where there is none."""
    found = client.list_jobs(group=group, owner=user)
    if not found:
        raise UnknownGroupError(group, user)
    return found
