"""The settings of the service by name: what each means, and how a text from a flag or the environment is read."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _number(text: str) -> float | str:
    # Invalid numbers stay text, so that one validator reports them.
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _whole(text: str) -> int | str:
    with contextlib.suppress(ValueError):
        return int(text)
    return text


def _path(text: str) -> str:
    """Return the path as seen from here; those in the file are seen from the file's folder."""
    return str(Path.cwd() / Path(text).expanduser()) if text.strip() else text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of the [service] table; also a flag of `slaq serve` and a variable of the environment."""

    name: str
    #: One sentence.
    meaning: str
    #: What a flag or a variable holds, as help shows it.
    metavar: str
    #: Reads that text as the value that the file would hold.
    read: Callable[[str], Any]
    #: The default, in words.
    usual: str
    #: Whether a reload takes it up; anything else waits for a restart.
    live: bool = False

    @property
    def flag(self) -> str:
        """The flag of `slaq serve`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"SLAQ_{self.name.upper()}"


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(name="home", meaning="The folder of everything that the service keeps.", metavar="FOLDER",
                read=_path, usual="~/.slaq"),
        Setting(name="cores", meaning="Cores to hand out.", metavar="N", read=_whole, usual="all"),
        Setting(name="units_per_core", meaning="Units into which decisions cut a core.", metavar="N", read=_whole,
                usual="64 divided by the cores"),
        Setting(name="policy", meaning="Who gets the cores.", metavar="NAME", read=str,
                usual="total-quality", live=True),
        Setting(name="epoch_seconds", meaning="Seconds from one decision to the next.", metavar="SECONDS",
                read=_number, usual="1"),
        Setting(name="throttle", meaning="How CPU shares are enforced.", metavar="NAME", read=str,
                usual="the best that works"),
        Setting(name="grace", meaning="Seconds a job has to end once told to, unless its owner says otherwise.",
                metavar="SECONDS", read=_number, usual="30"),
        Setting(name="listen", meaning="The Unix socket.", metavar="PATH", read=_path,
                usual="slaq.sock in home"),
        Setting(name="group", meaning="The Unix group whose members may use the socket.", metavar="NAME",
                read=str, usual="the service's user alone"),
        Setting(name="tcp", meaning="A TCP address for users with tokens; off loopback only with TLS.",
                metavar="HOST:PORT", read=str, usual="no TCP"),
        Setting(name="tls_cert", meaning="The certificate (PEM), chain included.", metavar="PATH", read=_path,
                usual="no TLS"),
        Setting(name="tls_key", meaning="The certificate's private key (PEM).", metavar="PATH", read=_path,
                usual="no TLS"),
        Setting(name="log_format", meaning="Logs as text or as JSON lines.", metavar="text|json", read=str,
                usual="text"),
        Setting(name="log_level", meaning="Minimum log level.",
                metavar="debug|info|warning|error", read=str, usual="info", live=True),
        Setting(name="visibility", meaning="Whether users see only their own jobs, or read all.",
                metavar="own|all", read=str, usual="own", live=True),
        Setting(name="admins", meaning="Users who may do everything.", metavar="NAME,...", read=_names,
                usual="root and the service's user", live=True),
        Setting(name="max_request_bytes", meaning="Bytes of the largest request; JSON takes 1 MiB at most.",
                metavar="BYTES", read=_whole,
                usual="4194304", live=True),
        Setting(name="requests_per_second", meaning="Requests of one user, on average.", metavar="N",
                read=_number, usual="200", live=True),
        Setting(name="connections_per_user", meaning="Connections that one user may hold open at a time.",
                metavar="N", read=_whole, usual="128", live=True),
        Setting(name="concurrent", meaning="Jobs that run at a time, of all users together.",
                metavar="N", read=_whole, usual="10000", live=True),
        Setting(name="retention_days", meaning="Days after which an ended job is removed.", metavar="DAYS",
                read=_number, usual="never", live=True),
        Setting(name="keep_decisions", meaning="Decisions kept, the newest.", metavar="N", read=_whole,
                usual="10000", live=True),
    )
}  # fmt: skip
