"""Checks of output files, made before the work begins."""

import logging
from pathlib import Path

import click
from click.core import ParameterSource

from slaq.cli.display.say import say
from slaq.core.errors import MissingExtraError
from slaq.core.extras import needs

PICTURES = (".png", ".svg", ".pdf")


def picture_path(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return the path of a picture; a click callback that rejects unknown picture formats."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise click.BadParameter(
            f"{str(path)!r} is not a picture file; end the name in {', '.join(PICTURES)}"
        )
    return page_path(ctx, param, path)


def page_path(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return the path of a page with charts; a click callback that fails without Matplotlib.

    Without Matplotlib, a page that was not asked for but is written by default is left out: None.
    """
    checked = output_path(ctx, param, path)
    if checked is None:
        return None
    try:
        load_matplotlib()
    except MissingExtraError:
        if ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT:
            raise
        return None
    return checked


def output_path(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return the path of a file to write; a click callback that rejects folders and missing folders."""
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{str(path)!r} is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r}; create it first")
    return path


def announce(kind: str, path: Path) -> None:
    """Print on stderr where a file was written; stdout holds only the result."""
    say(f"{kind}: {path}", err=True)


def load_matplotlib() -> None:
    """Import Matplotlib without its font cache messages; raises MissingExtraError."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with needs("plot"):
        import matplotlib  # noqa: F401
