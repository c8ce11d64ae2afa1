"""Finds the service: by its address, by the environment, or at the default socket."""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slaq.core.errors import AddressError

URL_VARIABLE, TOKEN_VARIABLE, HOME_VARIABLE = "SLAQ_URL", "SLAQ_TOKEN", "SLAQ_HOME"
SOCKET = "slaq.sock"
#: Variables that a job takes over from where it was submitted, by name and by what the name begins with.
#: docs/scripts.md lists them for users.
# fmt: off
PASSED_ON = frozenset({
    # Which programs and libraries are found, and where.
    "PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "TMPDIR",
    # How Python behaves.
    "PYTHONPATH", "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONNOUSERSITE",
    "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED",
    "PYTHONBREAKPOINT",
    # Which devices are used.
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    # The language, and the time zone.
    "LANG", "LANGUAGE", "TZ",
    # How the network is reached.
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # What single libraries read.
    "TOKENIZERS_PARALLELISM", "MPLBACKEND", "MPLCONFIGDIR",
})
PASSED_ON_BEGINNINGS = (
    "CONDA_", "LC_", "WANDB_", "HF_", "HUGGINGFACE_", "MLFLOW_", "TRANSFORMERS_", "DIFFUSERS_", "KERAS_",
    "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TF_", "JAX_", "XLA_", "NCCL_", "ACCELERATE_", "COMET_", "OPTUNA_",
)
# fmt: on
_KINDS = "give unix:///path/to/slaq.sock, https://host:port, or http://127.0.0.1:port"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a service, and the token for it."""

    #: As a user types it.
    address: str
    #: The first part of every request's URL.
    base_url: str
    socket: Path | None = None
    token: str | None = None

    @property
    def local(self) -> bool:
        """Whether the service is on this machine, so that paths mean the same there."""
        return self.socket is not None


def find_endpoint(
    address: str | None, token: str | None, environ: Mapping[str, str] = os.environ
) -> Endpoint:
    """Return the service's address and token; the environment gives what the arguments do not."""
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
        raise AddressError(address, f"this is not a valid address ({error})", _KINDS) from None
    if parts.scheme == "unix" and not parts.netloc and parts.path:
        return Endpoint(address=address, base_url="http://localhost", socket=Path(parts.path), token=token)
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise AddressError(address, "this is not the address of a service", _KINDS)
    if parts.scheme == "http" and not _on_loopback(host):
        # Anybody on the network could read the token.
        raise AddressError(address, "a service on another machine must be reached by https", _KINDS)
    name = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    return Endpoint(address=address, base_url=base, token=token)


def surroundings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of this environment that a job on this machine takes over."""
    return {
        name: value
        for name, value in environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_BEGINNINGS)
    }


def _on_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
