"""The sockets a service listens on: a Unix socket for this machine's users, TCP for those with tokens."""

import errno
import grp
import os
import socket
import ssl
import stat
from pathlib import Path

from slaq.config.service import Address, ServiceSettings
from slaq.core.errors import AddressError

BACKLOG = 1024


def unix_socket(path: Path, group: str | None) -> socket.socket:
    """Listen at a path, for its owner alone or for a group; replace a socket at which nobody answers."""
    _clear(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The file that bind creates takes the socket's mode, so others can never open it.
    os.fchmod(listener.fileno(), 0o600)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise AddressError(
            f"unix://{path}", error.strerror or str(error), "choose another: --listen"
        ) from None
    if group is not None:
        try:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(0o660)
        except (OSError, KeyError):
            listener.close()
            path.unlink()
            found = f"the socket cannot be given to the group {group!r}"
            remedy = f"run the service as root or as a member of {group}"
            raise AddressError(f"unix://{path}", found, remedy) from None
    listener.listen(BACKLOG)
    return listener


def _clear(path: Path) -> None:
    """Remove a socket that a service left behind; raise where anything else is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"unix://{path}", "there is a file that is not a socket", "move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise AddressError(f"unix://{path}", error.strerror or str(error), "move it away") from None
    raise AddressError(f"unix://{path}", "a service answers there already", "stop it first")


def tcp_socket(address: Address) -> socket.socket:
    """Listen at a host and port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        found = "something listens there already" if taken else error.strerror or str(error)
        raise AddressError(str(address), found, "choose another: --tcp HOST:PORT") from None
    listener.listen(BACKLOG)
    return listener


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Return the TLS context for TCP; None on loopback without a certificate.

    Raises off loopback without a certificate: tokens would cross the network in the clear.
    """
    address = settings.tcp
    if settings.tls_cert is None or settings.tls_key is None:
        if address is not None and not address.loopback:
            found = "other machines can reach it, and there is no TLS"
            remedy = "give tls_cert and tls_key, or listen on 127.0.0.1"
            raise AddressError(str(address), found, remedy)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServiceSettings) -> None:
    """Read certificate and key; new connections use them."""
    assert settings.tls_cert is not None
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        found = f"the certificate cannot be used with {settings.tls_key} ({error.strerror or error})"
        remedy = "give a certificate and its key, both PEM"
        raise AddressError(str(settings.tls_cert), found, remedy) from None
