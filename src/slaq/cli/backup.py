"""`slaq backup`: fetches a copy of the service's database while it runs."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slaq.cli.outputs import announce, output_path
from slaq.cli.reach import reaches

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("backup")
@click.argument("path", type=click.Path(path_type=Path), callback=output_path)
@click.option("--force", is_flag=True, help="Replace PATH where it exists.")
@reaches
def command(client: "Client", path: Path, force: bool) -> None:
    """Fetch a copy of the service's database into PATH, while it runs. For admins.

    The copy is whole and consistent: all that was acknowledged before it began is in it. PATH appears only
    once it is complete, and its owner alone can read it.

    \b
    slaq backup slaq-$(date +%F).db
    """
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists; name another file, or add --force")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        client.backup(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    announce("backup", path)
