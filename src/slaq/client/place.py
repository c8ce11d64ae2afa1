"""Where a service is: read from an address, the environment, or the usual socket."""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slaq.core.errors import AddressError

URL_VARIABLE, TOKEN_VARIABLE, HOME_VARIABLE = "SLAQ_URL", "SLAQ_TOKEN", "SLAQ_HOME"
SOCKET = "slaq.sock"
#: What a job finds in its environment from where it was submitted: enough to run what runs there.
PASSED_ON = (
    *("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"),
    *("LANG", "LC_ALL", "TZ"),
)
_KINDS = "give unix:///path/to/slaq.sock, https://host:port, or http://127.0.0.1:port"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One service, and what lets us in."""

    #: For people: what to type for it.
    address: str
    #: What requests begin with.
    base_url: str
    socket: Path | None = None
    token: str | None = None

    @property
    def local(self) -> bool:
        """Whether it is on this machine, so that paths mean the same to it."""
        return self.socket is not None


def find_place(address: str | None, token: str | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Return where the service is; what is not given comes from the environment."""
    address = address or environ.get(URL_VARIABLE) or None
    token = token or environ.get(TOKEN_VARIABLE) or None
    if address is None:
        home = environ.get(HOME_VARIABLE)
        folder = Path(home).expanduser() if home else Path.home() / ".slaq"
        address = f"unix://{folder.absolute() / SOCKET}"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(address, f"this is no address ({error})", _KINDS) from None
    if parts.scheme == "unix" and not parts.netloc and parts.path:
        return Place(address=address, base_url="http://localhost", socket=Path(parts.path), token=token)
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise AddressError(address, "this is no address of a service", _KINDS)
    if parts.scheme == "http" and not _on_loopback(host):
        # The token would cross the network for everyone to read.
        raise AddressError(address, "a service on another machine is reached by https only", _KINDS)
    name = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    return Place(address=address, base_url=base, token=token)


def surroundings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what of this environment a job on this machine cannot do without."""
    return {name: environ[name] for name in PASSED_ON if name in environ}


def _on_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
