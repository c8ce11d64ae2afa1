"""`slaq serve`: runs the service."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from slaq.cli.display.say import say
from slaq.config.settings import SETTINGS

if TYPE_CHECKING:
    from slaq.config.service import SettingsSources


def _options(function: Any) -> Any:
    """Add a flag for each setting to the verb."""
    for setting in reversed(tuple(SETTINGS.values())):
        function = click.option(
            setting.flag,
            setting.name,
            envvar=setting.variable,
            metavar=setting.metavar,
            help=f"{setting.meaning}  [default: ${setting.variable}, the file, else {setting.usual}]",
        )(function)
    return function


@click.command("serve")
@click.option(
    "--config",
    envvar="SLAQ_CONFIG",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file.  [default: $SLAQ_CONFIG, else slaq.toml in home]",
)
@_options
@click.option("--check", is_flag=True, help="Check and print the settings, and start nothing.")
@click.pass_context
def command(ctx: click.Context, /, check: bool, **_: Any) -> None:
    """Run the service: scheduler, engine, HTTP API and event stream, until SIGTERM or Ctrl-C.

    Each setting is taken from its flag, else from its environment variable, else from the file, else it has
    its default. SIGHUP reads the settings again and applies those that can change while jobs run. A stop
    ends the processes of all jobs; the jobs continue when the service starts again, as they do after a crash.
    The exit status is 0 after a clean stop, 1 if the service could not start, 2 for an invalid flag.

    \b
    slaq serve
    slaq serve --config /etc/slaq.toml --check
    slaq serve --tcp 127.0.0.1:8642 --log-format json
    """
    from slaq.bootstrap import live_policy_names
    from slaq.config.service import AllowedNames, ServiceSettings, read_settings
    from slaq.core.errors import SettingsError
    from slaq.core.extras import needs
    from slaq.engines.node.commands.shares import WAYS

    given = sources(ctx)
    known = AllowedNames(policies=live_policy_names(), throttles=tuple(WAYS))

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
    with needs("service"):
        from slaq.web.server import serve
    serve(settings, read)


def sources(ctx: click.Context) -> "SettingsSources":
    """Return what flags and variables say, as click read them, with where each comes from."""
    from slaq.config.service import SettingsSources

    texts = {name: text for name in SETTINGS if (text := ctx.params[name]) is not None}
    typed = {name for name in texts if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    origins = {name: SETTINGS[name].flag if name in typed else SETTINGS[name].variable for name in texts}
    return SettingsSources(texts=texts, origins=origins, config=ctx.params["config"])


def _show(settings: Any) -> None:
    source = "no file" if settings.config is None else str(settings.config)
    say(f"the settings have no mistakes ({source})")
    for name in SETTINGS:
        value = getattr(settings, name)
        shown = ", ".join(value) if isinstance(value, tuple) else value
        say(f"  {name} = {'–' if value in (None, ()) else shown}")
    for user, limits in {"everyone else": settings.defaults, **settings.users}.items():
        most = (
            _most(limits.max_jobs, "jobs"),
            _most(limits.max_running, "running jobs"),
            _most(limits.max_cores, "cores"),
        )
        say(f"  {user}: weight {limits.weight:g}, {', '.join(most)}")


def _most(limit: float | None, what: str) -> str:
    return f"any number of {what}" if limit is None else f"at most {limit:g} {what}"
