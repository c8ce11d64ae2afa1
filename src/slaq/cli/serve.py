"""`slaq serve`: the service that a team leaves running."""

from pathlib import Path
from typing import Any

import click

from slaq.config.settings import SETTINGS


def _options(function: Any) -> Any:
    """Give the verb a flag for each setting."""
    for setting in reversed(tuple(SETTINGS.values())):
        function = click.option(
            setting.flag,
            setting.name,
            metavar=setting.metavar,
            help=f"{setting.meaning}  [default: ${setting.variable}, the file, else {setting.usual}]",
        )(function)
    return function


@click.command("serve")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of settings.  [default: $SLAQ_CONFIG, else slaq.toml in home]",
)
@_options
@click.option("--check", is_flag=True, help="Check the settings, show them, and start nothing.")
def command(config: Path | None, check: bool, **flags: str | None) -> None:
    """Run the service: scheduler, engine, HTTP API and event stream, until SIGTERM or Ctrl-C.

    Each setting is taken from its flag, else from its variable of the environment, else from the file, else
    it is the default. SIGHUP reads the settings again and takes up what can change while jobs run. A stop is
    clean: jobs are stopped where they are, and go on when the service is started again, as they do after a
    crash. The exit status is 0 after a clean stop, 1 where it could not start, 2 for a flag that makes no sense.

    \b
    slaq serve
    slaq serve --config /etc/slaq.toml --check
    slaq serve --tcp 127.0.0.1:8642 --log-format json
    """
    from slaq.bootstrap import LIVE_POLICIES
    from slaq.config.service import Given, Known, ServiceSettings, read_settings
    from slaq.core.errors import MissingExtraError, SettingsError
    from slaq.engines.processes.shares import WAYS

    given = Given(flags={name: text for name, text in flags.items() if text is not None}, config=config)
    known = Known(policies=LIVE_POLICIES, throttles=tuple(WAYS))

    def read() -> ServiceSettings:
        return read_settings(given, known)

    try:
        settings = read()
    except SettingsError as error:
        if all(where.startswith("--") for where, _, _ in error.mistakes):
            raise click.UsageError(str(error)) from None
        raise
    if check:
        _show(settings)
        return
    try:
        from slaq.web.server import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "FastAPI", "service") from None
    serve(settings, read)


def _show(settings: Any) -> None:
    source = "no file" if settings.config is None else str(settings.config)
    click.echo(f"the settings have no mistakes ({source})")
    for name in SETTINGS:
        value = getattr(settings, name)
        shown = ", ".join(value) if isinstance(value, tuple) else value
        click.echo(f"  {name} = {'–' if value in (None, ()) else shown}")
    for user, limits in {"everyone else": settings.defaults, **settings.users}.items():
        most = f"{_most(limits.max_jobs, 'jobs')}, {_most(limits.max_cores, 'cores')}"
        click.echo(f"  {user}: weight {limits.weight:g}, {most}")


def _most(limit: float | None, what: str) -> str:
    return f"any number of {what}" if limit is None else f"at most {limit:g} {what}"
