"""Reaches the service for a verb: the options that say where it is, and the client they lead to."""

import json
import stat
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from slaq.core.errors import TokenError

if TYPE_CHECKING:
    from slaq.client import Client

T = TypeVar("T")

#: Seconds for which a service that restarts is waited for: by most verbs, and by those that wait anyway.
PATIENCE, LONG_PATIENCE = 30.0, 3600.0

URL = click.option(
    "--url",
    envvar="SLAQ_URL",
    metavar="ADDRESS",
    help="Where the service is: unix:///path or http(s)://host:port.  "
    "[default: $SLAQ_URL, else the socket in $SLAQ_HOME]",
)
TOKEN = click.option(
    "--token-file",
    envvar="SLAQ_TOKEN_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Holds the token for TCP.  [default: $SLAQ_TOKEN_FILE, else the token itself in $SLAQ_TOKEN]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, and no table.")


def reaching(patience: float) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a verb the options that say where the service is, and call it with a `client` for it."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @URL
        @TOKEN
        @wraps(function)
        def call(*args: Any, url: str | None, token_file: Path | None, **kwargs: Any) -> T:
            with client_for(url, token_file, patience) as client:
                return function(*args, client=client, **kwargs)

        return call

    return decorate


#: For a verb that asks and is done.
reaches = reaching(PATIENCE)


def client_for(url: str | None, token_file: Path | None, patience: float = PATIENCE) -> "Client":
    """Return a client for the service, which bridges its absence for so many seconds once it was reached."""
    from slaq.client import connect

    return connect(url, None if token_file is None else _token_in(token_file), patience=patience)


def _token_in(file: Path) -> str:
    token = file.read_text(encoding="utf-8").strip()
    if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        click.echo(f"slaq: others can read the token in {file}; take that away: chmod 600 {file}", err=True)
    if not token or len(token.split()) != 1 or not token.isascii():
        raise TokenError(f"{file} holds no token", "put one there that `slaq token create` printed, alone")
    return token


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of jobs that begin so; none where the service does not answer at once."""
    try:
        with client_for(ctx.params.get("url"), ctx.params.get("token_file"), patience=0.0) as client:
            jobs = client.list_jobs()
    except Exception:
        # Whatever is wrong, a shell in the middle of a line is no place to tell it.
        return []
    return [
        CompletionItem(job["id"], help=f"{job['state']}, {job['summary']}")
        for job in jobs
        if job["id"].startswith(incomplete)
    ]


#: One job, or several, with completion of their ids.
JOB = click.argument("job", metavar="JOB", shell_complete=complete_jobs)
JOBS = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)


def print_json(value: Any) -> None:
    """Print a value as the documented JSON."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
