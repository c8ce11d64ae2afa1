"""The settings of a service: flags win over the environment, the environment over a TOML file."""

import grp
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.config.lines import Lines, Place
from slaq.config.section import Diagnostics, Section
from slaq.config.settings import SETTINGS
from slaq.config.toml import read_toml
from slaq.core.errors import JobsFileError, SettingsError
from slaq.jobs.options import CLUSTER, LIMITS, SERVICE

FILE = "slaq.toml"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
VISIBILITIES = ("own", "all")
#: What the kernel takes as the path of a Unix socket, less the byte that ends it.
LONGEST_SOCKET_PATH = 107
LARGEST_REQUEST = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """The limits of one user."""

    #: Their part in the sharing between users, against the others'.
    weight: float = LIMITS.options["weight"].default
    #: Jobs that have not ended; None for no limit.
    max_jobs: int | None = None
    #: Jobs that run at a time; None for no limit.
    max_running: int | None = None
    #: Cores held at once; None for no limit.
    max_cores: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a TCP socket."""

    host: str
    #: 0 for any that is free.
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """All settings of a service; `slaq.config.settings` describes each."""

    home: Path
    #: The file it was read from; None where there is none.
    config: Path | None = None
    #: None for all that this machine has.
    cores: int | None = None
    #: None for as many as suit the cores.
    units_per_core: int | None = None
    policy: str = "total-quality"
    epoch_seconds: float = CLUSTER.options["epoch_seconds"].default
    #: None for the best that works here.
    throttle: str | None = None
    #: Seconds that a job has to end once it is told to, where its owner gives none.
    grace: float = 30.0
    listen: Path
    group: str | None = None
    tcp: Address | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    log_format: str = "text"
    log_level: str = "info"
    visibility: str = "own"
    admins: tuple[str, ...] = ()
    max_request_bytes: int = 4 * 2**20
    requests_per_second: float = 200.0
    connections_per_user: int = 128
    concurrent: int = 10_000
    #: None for no end.
    retention_days: float | None = None
    keep_decisions: int = 10_000
    users: Mapping[str, UserLimits] = field(default_factory=dict)
    #: For users without a table of their own, and for what their table does not say.
    defaults: UserLimits = field(default_factory=UserLimits)

    @property
    def database(self) -> Path:
        """The store's file."""
        return self.home / "slaq.db"

    @property
    def jobs(self) -> Path:
        """The folder with a folder for each job."""
        return self.home / "jobs"

    @property
    def tokens(self) -> Path:
        """The file of tokens for TCP."""
        return self.home / "tokens.toml"

    def limits_of(self, user: str) -> UserLimits:
        """Return the limits of a user."""
        return self.users.get(user, self.defaults)

    def waiting_for_restart(self, other: "ServiceSettings") -> tuple[str, ...]:
        """Return the names of settings that differ and need a restart to take effect."""
        return tuple(
            name
            for name, setting in SETTINGS.items()
            if not setting.live and getattr(self, name) != getattr(other, name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSources:
    """The settings given by flags and environment variables, which win over the file."""

    #: Texts by the setting's name.
    texts: Mapping[str, str] = field(default_factory=dict)
    #: The flag or the variable that each text comes from.
    origins: Mapping[str, str] = field(default_factory=dict)
    #: The file; None for slaq.toml in home, if there is one.
    config: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedNames:
    """The names that settings may use; the composition root gives them."""

    policies: Sequence[str]
    throttles: Sequence[str]


def read_settings(given: SettingsSources, known: AllowedNames) -> ServiceSettings:
    """Return the settings; raises SettingsError with every mistake, its place and its remedy."""
    path = _usual_config(given.texts) if given.config is None else Path.cwd() / given.config.expanduser()
    text, values = _file(path, required=given.config is not None)
    diagnostics = _SettingsDiagnostics(path, text, given.origins)
    top = Section(values, (), diagnostics)
    table = top.take("service", "a [service] table", dict) or {}
    said = {**table, **{name: SETTINGS[name].read(text) for name, text in given.texts.items()}}
    reader = _ServiceReader(Section(said, ("service",), diagnostics), known)
    service = reader.read()
    defaults = _limits(top.table("defaults", "a table [defaults]"), UserLimits(), "[defaults]")
    users = _users(top.table("users", "tables [users.NAME]"), defaults)
    top.close("a settings file")
    diagnostics.raise_any()
    home = service.pop("home", None) or _usual_home()
    service.setdefault("listen", home / "slaq.sock")
    if len(os.fsencode(service["listen"])) > LONGEST_SOCKET_PATH:
        diagnostics.add(
            ("service", "listen"),
            f"the socket's path {service['listen']} is longer than {LONGEST_SOCKET_PATH} bytes",
            "name a shorter one: listen",
        )
        diagnostics.raise_any()
    return ServiceSettings(
        home=home, config=path if text else None, users=users, defaults=defaults, **service
    )


def _usual_home() -> Path:
    return Path.home() / ".slaq"


def _usual_config(texts: Mapping[str, str]) -> Path:
    home = texts.get("home")
    return (Path(SETTINGS["home"].read(home)) if home else _usual_home()) / FILE


def _file(path: Path, *, required: bool) -> tuple[str, dict[str, Any]]:
    if not required and not path.exists():
        return "", {}
    try:
        return read_toml(path)
    except JobsFileError as error:
        raise SettingsError(
            [(f"{path}, line {line}", found, remedy) for line, found, remedy in error.mistakes]
        ) from None
    except OSError as error:
        found = f"the file cannot be read ({error.strerror})"
        raise SettingsError([(str(path), found, "name another file, or correct its permissions")]) from None


class _SettingsDiagnostics(Diagnostics):
    """Collects mistakes with their place: a line of the file, a flag or a variable."""

    def __init__(self, path: Path, text: str, origins: Mapping[str, str]) -> None:
        super().__init__(path, text)
        self._place_of = Lines(text)
        self._origins = origins
        self._told: dict[tuple[str, str, str], int] = {}

    @override
    def add(self, place: Place, found: str, remedy: str) -> None:
        super().add(place, found, remedy)
        line = self._place_of.of(place)
        where = f"{self.path}, line {line}"
        if place[:1] == ("service",) and len(place) > 1:
            where = self._origins.get(str(place[1]), where)
        self._told[where, found, remedy] = line

    @override
    def raise_any(self) -> None:
        if self._told:
            raise SettingsError(sorted(self._told, key=lambda told: self._told[told]))


class _ServiceReader:
    """Reads the [service] table."""

    def __init__(self, section: Section, known: AllowedNames) -> None:
        self._section = section
        self._known = known

    def read(self) -> dict[str, Any]:
        """Return the fields of ServiceSettings that are given and have no mistake."""
        section = self._section
        given: dict[str, Any] = {
            "home": section.path("home"),
            **{name: section.option(option) for name, option in CLUSTER.options.items()},
            "policy": section.choice("policy", "policy", self._known.policies),
            "throttle": section.choice("throttle", "way to enforce CPU shares", self._known.throttles),
            "listen": section.path("listen"),
            "grace": section.option(SERVICE.options["grace"]),
            "group": self._group(),
            "tcp": self._address(),
            **self._tls(),
            "log_format": section.choice("log_format", "log format", LOG_FORMATS),
            "log_level": section.choice("log_level", "log level", LOG_LEVELS),
            "visibility": section.choice("visibility", "visibility", VISIBILITIES),
            "admins": self._admins(),
            "max_request_bytes": self._request_bytes(),
            "requests_per_second": section.number(
                "requests_per_second", above=0.0, wanted="a number above 0"
            ),
            "connections_per_user": section.whole("connections_per_user", least=1),
            "retention_days": section.number("retention_days", above=0.0, wanted="a number of days above 0"),
            "keep_decisions": section.whole("keep_decisions", least=1),
        }
        section.close("[service]")
        self._check_tls(given)
        return {name: value for name, value in given.items() if value is not None}

    def _group(self) -> str | None:
        name = self._section.text("group", "the name of a Unix group")
        if name is None:
            return None
        try:
            grp.getgrnam(name)
        except KeyError:
            self._section.note(
                "group",
                f"there is no Unix group {name!r} here",
                f"create it: groupadd {name}, or name another",
            )
            return None
        return name

    def _address(self) -> Address | None:
        wanted = "an address such as 127.0.0.1:8642 or [::1]:8642"
        text = self._section.text("tcp", wanted)
        if text is None:
            return None
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        sound = colon and bare and port.isdecimal() and int(port) < 2**16
        if not sound or (":" in bare) != host.startswith("["):
            self._section.note("tcp", f"tcp is {text!r}", f"give {wanted}")
            return None
        return Address(host=bare, port=int(port))

    def _tls(self) -> dict[str, Path | None]:
        section = self._section
        found = {key: section.path(key) for key in ("tls_cert", "tls_key")}
        for (key, path), other in zip(found.items(), ("tls_key", "tls_cert"), strict=True):
            if path is not None and not path.is_file():
                section.note(key, f"there is no file {path}", "check the path")
            if path is not None and not section.had(other):
                section.note(key, f"{key} is given without {other}", f"give both, or remove {key}")
        return found

    def _admins(self) -> tuple[str, ...] | None:
        wanted = 'a list of users, such as ["ann"]'
        names = self._section.take("admins", wanted, list)
        if names is None:
            return None
        if not all(isinstance(name, str) and name for name in names):
            self._section.note("admins", "admins has an entry that is not a user name", f"give {wanted}")
            return None
        return tuple(names)

    def _request_bytes(self) -> int | None:
        size = self._section.whole("max_request_bytes", least=1024)
        if size is not None and size > LARGEST_REQUEST:
            self._section.note(
                "max_request_bytes", f"max_request_bytes is {size}", f"give at most {LARGEST_REQUEST}"
            )
            return None
        return size

    def _check_tls(self, given: Mapping[str, Any]) -> None:
        address, secured = given["tcp"], given["tls_cert"] is not None and given["tls_key"] is not None
        if address is not None and not address.loopback and not secured:
            self._section.note(
                "tcp",
                f"{address} can be reached from other machines, and there is no TLS",
                "give tls_cert and tls_key, or listen on 127.0.0.1",
            )


def _limits(section: Section | None, usual: UserLimits, kind: str) -> UserLimits:
    """Return a user's limits; those that the table does not give are the usual ones."""
    if section is None:
        return usual
    given = {name: section.option(option) for name, option in LIMITS.options.items()}
    section.close(kind)
    return replace(usual, **{name: value for name, value in given.items() if value is not None})


def _users(section: Section | None, defaults: UserLimits) -> dict[str, UserLimits]:
    if section is None:
        return {}
    tables = {name: section.table(name, f"a table [users.{name}]") for name in list(section.values)}
    return {name: _limits(table, defaults, f"[users.{name}]") for name, table in tables.items()}
