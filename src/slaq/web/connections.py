"""Places for connections: how many each user may hold, which are kept for admins, and which is given up first."""

import ipaddress
import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from slaq.web.identity import name_of

#: Connections at once, of all users, where there are descriptors enough.
MOST = 4096
#: The part of the descriptors that connections may take; jobs, the store and the log need the others.
PART = 4
#: The part of the places that only admins on the Unix socket may take.
KEPT_PART = 8
#: Bits of an IPv6 address that name a network: everyone who has one address has all addresses of its network.
NETWORK = 64
#: Stands for all numbers of users that belong to no account.
NO_ACCOUNT = "without an account"
_CREDENTIALS = struct.Struct("3i")

#: Whose a connection is: a Unix user, an address, or the user of a token.
Key = tuple[str, int | str]


class Place:
    """One accepted connection. It waits while no request on it is being answered."""

    __slots__ = ("_end", "admin", "descriptor", "given_up", "key", "peer")

    def __init__(
        self, descriptor: int, key: Key, end: Callable[[], None], *, peer: int | None = None
    ) -> None:
        self.descriptor = descriptor
        self.key = key
        #: The Unix user at the other end; None for TCP.
        self.peer = peer
        #: Whether it may take a place that is kept for admins: root and the service's own user may, on the socket.
        self.admin = peer is not None and peer in (0, os.geteuid())
        self.given_up = False
        self._end = end

    def give_up(self) -> None:
        """End the connection; its socket is closed soon after."""
        self.given_up = True
        self._end()


class Places:
    """Hands out places for connections.

    One user takes at most `each` places, and at most half of those that are left, so that several users who hold
    all they can leave some for others. Beyond that, a user's new connection takes the place of the one of theirs
    that has waited longest: requests which are never finished keep nobody from asking.
    """

    def __init__(self, total: int, each: Callable[[], int]) -> None:
        self.total = total
        self.kept = max(total // KEPT_PART, 1)
        self._each = each
        #: By descriptor.
        self._open: dict[int, Place] = {}
        self._held: Counter[Key] = Counter()
        #: By key, in the order in which they began to wait.
        self._waiting: dict[Key, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def take(self, place: Place) -> bool:
        """Count a new connection; return False where it has to be refused."""
        if not self._fits(place.key, admin=place.admin):
            return False
        self._open[place.descriptor] = place
        self._held[place.key] += 1
        self._waiting.setdefault(place.key, {})[place] = None
        return True

    def leave(self, place: Place) -> None:
        """Stop counting a connection whose socket was closed; do nothing if it is not counted."""
        if self._counts(place):
            del self._open[place.descriptor]
            self._forget(place)

    def at(self, descriptor: int) -> Place | None:
        """Return the open connection of that descriptor."""
        return self._open.get(descriptor)

    def move(self, place: Place, key: Key, *, admin: bool) -> bool:
        """Count a connection as another user's from now on; return False where that user may have no more."""
        if place.key == key or place.given_up or not self._counts(place):
            return True
        waits = place in self._waiting.get(place.key, ())
        self._forget(place)
        if not self._fits(key, admin=admin, there=1):
            self._held[place.key] += 1
            return False
        place.key, place.admin = key, admin
        self._held[key] += 1
        if waits:
            self.wait(place)
        return True

    def wait(self, place: Place) -> None:
        """Record that a connection waits for a request from now on."""
        if self._counts(place) and not place.given_up:
            self._waiting.setdefault(place.key, {})[place] = None

    def work(self, place: Place) -> None:
        """Record that a request is being answered on a connection."""
        waiting = self._waiting.get(place.key)
        if waiting is not None:
            waiting.pop(place, None)
            if not waiting:
                del self._waiting[place.key]

    def _counts(self, place: Place) -> bool:
        return self._open.get(place.descriptor) is place

    def _fits(self, key: Key, *, admin: bool, there: int = 0) -> bool:
        """Return whether a user may have one more, after giving up one that waits.

        `there` is 1 where that one is open already, and only changes its user.
        """
        room = self.total - len(self._open) + there - (0 if admin else self.kept)
        if room <= 0:
            return False
        if self._held[key] < min(self._each(), max(room // 2, 1)):
            return True
        waiting = self._waiting.get(key)
        if not waiting:
            return False
        oldest = next(iter(waiting))
        self._forget(oldest)
        oldest.give_up()
        return True

    def _forget(self, place: Place) -> None:
        self.work(place)
        if not place.given_up:
            self._held[place.key] -= 1
            if not self._held[place.key]:
                del self._held[place.key]


def most_connections() -> int:
    """Return how many connections there may be, so that enough descriptors are left for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(min(MOST, soft // PART), KEPT_PART)


def place_of(connection: socket.socket, address: Any, end: Callable[[], None]) -> Place:
    """Return a place for an accepted connection."""
    descriptor = connection.fileno()
    if connection.family != socket.AF_UNIX:
        return Place(descriptor, ("address", network_of(address[0])), end)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    # In a namespace one user may have many numbers that belong to no account.
    return Place(descriptor, ("uid", uid if name_of(uid) is not None else NO_ACCOUNT), end, peer=uid)


def network_of(host: str) -> str:
    """Return what counts as one address: each IPv4 address, each network of IPv6, and loopback as a whole."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return "loopback"
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, NETWORK), strict=False))
