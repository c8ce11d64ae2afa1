"""Notifies systemd that the service is ready, reloading or stopping (sd_notify(3))."""

import contextlib
import os
import socket
import time


def notify(state: str) -> None:
    """Send a state such as READY=1 to NOTIFY_SOCKET; no-op without it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A leading @ means the abstract namespace, which the kernel writes as NUL.
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as courier:
        courier.sendto(state.encode(), target)


def notify_reloading() -> None:
    """Notify systemd that settings are being read again; READY=1 says that this is done."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
