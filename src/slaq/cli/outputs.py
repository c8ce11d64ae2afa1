"""The files that options let a verb write, checked before the work that fills them begins."""

import logging
from pathlib import Path

import click

PICTURES = (".png", ".svg", ".pdf")


def picture_path(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return where to draw; a click callback that refuses suffixes naming no picture format."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{str(path)!r} ends in none of {', '.join(PICTURES)}")
    return output_path(ctx, param, path)


def output_path(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return where to write; a click callback that refuses folders, and files in missing folders."""
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{str(path)!r} is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r} for it; make it first")
    return path


def announce(kind: str, path: Path) -> None:
    """Tell where something was written, on stderr, so that stdout stays the result."""
    click.echo(f"{kind}: {path}", err=True)


def hush_matplotlib() -> None:
    """Keep matplotlib's notes on its font cache off stderr; called before it is imported."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
