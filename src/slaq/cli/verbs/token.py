"""`slaq token`: creates, lists and revokes tokens for access over TCP."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN
from slaq.cli.input.connection_options import JSON, print_json

HOME = click.option(
    "--home",
    envvar="SLAQ_HOME",
    type=click.Path(path_type=Path, file_okay=False),
    help="The service's folder.  [default: $SLAQ_HOME, else ~/.slaq]",
)


@click.group("token")
def command() -> None:
    """Create, list and revoke tokens for access over TCP.

    The service's folder holds their hashes in tokens.toml; run this as the service's user. Changes take
    effect at once.
    """


def _file(home: Path | None) -> Path:
    return (home or Path.home() / ".slaq") / "tokens.toml"


@command.command("create")
@click.argument("name")
@click.option(
    "--user", metavar="NAME", help="The user that the token stands for.  [default: the token's name]"
)
@click.option("--admin", is_flag=True, help="Give the token the rights of an admin.")
@click.option(
    "--expires", type=SPAN, help="How long the token is valid, such as 90d.  [default: until it is revoked]"
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the token into a new file that only you can read, instead of printing it.",
)
@HOME
def create(
    name: str, user: str | None, admin: bool, expires: float | None, output: Path | None, home: Path | None
) -> None:
    """Create a token called NAME and print it. It cannot be shown again.

    \b
    slaq token create ann-laptop --user ann --expires 90d
    """
    from slaq.config.tokens import Token, make_token

    path = _file(home)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    until = None if expires is None else time.time() + expires
    token = Token(name=name, user=user or name, sha256="", admin=admin, expires=until)
    if output is None:
        say(make_token(path, token))
        return
    # Open the file first: a token that cannot be written would be lost.
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        secret = make_token(path, token)
    except BaseException:
        os.close(descriptor)
        output.unlink()
        raise
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{secret}\n")
    say(f"token: {output}", err=True)


@command.command("ls")
@HOME
@JSON
def ls(home: Path | None, as_json: bool) -> None:
    """List the names of the tokens, their users and when they expire. The tokens themselves are not shown."""
    from rich.table import Table

    from slaq.cli.display.terminal import show
    from slaq.config.tokens import read_tokens

    tokens = read_tokens(_file(home))
    if as_json:
        print_json(
            [
                {"name": one.name, "user": one.user, "admin": one.admin, "expires": one.expires}
                for one in tokens
            ]
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("token", "user", "admin", "valid until"):
        table.add_column(heading)
    for one in tokens:
        until = (
            "revoked"
            if one.expires is None
            else f"{datetime.fromtimestamp(one.expires, UTC):%Y-%m-%d %H:%M} UTC"
        )
        expired = "" if one.in_force(time.time()) else " (expired)"
        table.add_row(one.name, one.user, "yes" if one.admin else "no", until + expired)
    show(table)


@command.command("revoke")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@HOME
def revoke(names: tuple[str, ...], home: Path | None) -> None:
    """Revoke tokens, effective at once."""
    from slaq.config.tokens import remove_token

    for name in names:
        remove_token(_file(home), name)
