"""`slaq backup`: copies the database of the running service."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slaq.cli.display.outputs import announce, output_path
from slaq.cli.input.connection_options import connects
from slaq.durable import rename_durably

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("backup")
@click.argument("path", type=click.Path(path_type=Path), callback=output_path)
@click.option("--force", is_flag=True, help="Replace PATH if it exists.")
@connects
def command(client: "Client", path: Path, force: bool) -> None:
    """Copy the database of the running service to PATH. For admins.

    The copy is consistent and holds everything that the service acknowledged before the copy began. PATH
    appears only when the copy is complete, and only you can read it.

    \b
    slaq backup slaq-$(date +%F).db
    """
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists; name another file, or add --force")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        client.backup(draft)
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    announce("backup", path)
