"""The options that say where the service is, and the client that a verb gets from them."""

import json
import stat
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from slaq.cli.display.say import say
from slaq.core.errors import TokenError
from slaq.core.visible import visible

if TYPE_CHECKING:
    from slaq.client import Client

T = TypeVar("T")

#: Seconds to wait for a service that restarts: in most verbs, and in verbs that wait for jobs.
PATIENCE, LONG_PATIENCE = 30.0, 3600.0

#: Jobs whose ids complete: those that have not ended, and then those that ended last.
COMPLETED_JOBS = 1000

URL = click.option(
    "--url",
    envvar="SLAQ_URL",
    metavar="ADDRESS",
    help="The address of the service: unix:///path or http(s)://host:port.  "
    "[default: $SLAQ_URL, else the socket in $SLAQ_HOME]",
)
TOKEN = click.option(
    "--token-file",
    envvar="SLAQ_TOKEN_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A file with the token for TCP.  [default: $SLAQ_TOKEN_FILE, else the token itself in $SLAQ_TOKEN]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout instead of a table.")


def connecting(patience: float) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add --url and --token-file to a verb, and call the verb with a `client`."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @URL
        @TOKEN
        @wraps(function)
        def call(*args: Any, url: str | None, token_file: Path | None, **kwargs: Any) -> T:
            with client_for(url, token_file, patience) as client:
                return function(*args, client=client, **kwargs)

        return call

    return decorate


#: For a verb that sends one request and returns.
connects = connecting(PATIENCE)


def client_for(url: str | None, token_file: Path | None, patience: float = PATIENCE) -> "Client":
    """Return a client; once connected, it retries for `patience` seconds while the service restarts."""
    from slaq.client import connect

    return connect(url, None if token_file is None else _token_in(token_file), patience=patience)


def _token_in(file: Path) -> str:
    token = file.read_text(encoding="utf-8").strip()
    if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        say(f"slaq: other users can read the token in {file}; run: chmod 600 {file}", err=True)
    if not token or len(token.split()) != 1 or not token.isascii():
        raise TokenError(
            f"{file} does not hold a token", "write into it only what `slaq token create` printed"
        )
    return token


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of jobs that begin with `incomplete`; none if the service does not answer at once."""
    try:
        with client_for(ctx.params.get("url"), ctx.params.get("token_file"), patience=0.0) as client:
            jobs, _ = client.last_jobs(COMPLETED_JOBS)
    except Exception:
        # A message would disturb the line that the user is typing.
        return []
    return [
        CompletionItem(visible(job["id"]), help=visible(f"{job['state']}, {job['summary']}"))
        for job in jobs
        if job["id"].startswith(incomplete)
    ]


#: One job, with completion of its id.
JOB = click.argument("job", metavar="JOB", shell_complete=complete_jobs)


def print_json(value: Any) -> None:
    """Print a value as the documented JSON, in ASCII that can be printed."""
    say(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))
