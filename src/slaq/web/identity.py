"""Identifies who asks: the Unix user at the other end of a socket, or the user of a token."""

import contextlib
import errno
import logging
import os
import pwd
import time
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from slaq.config.tokens import Token, find, read_tokens
from slaq.core.errors import ForbiddenError, IdentityError, SettingsError
from slaq.service.records import Identity

_log = logging.getLogger(__name__)
#: Seconds for which the name of a Unix user is cached: a directory server may be slow.
NAMES_LAST = 60.0


class Identities:
    """Identifies users by their credentials; notices changes of the tokens file by itself."""

    def __init__(self, tokens: Path, admins: Collection[str]) -> None:
        self._path = tokens
        #: Users who are admins on the Unix socket, beside root and the service's own user.
        self.admins = frozenset(admins)
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []

    def of_peer(self, uid: int) -> Identity:
        """Return the identity of a Unix user; refuse one without an account, who may have many such numbers."""
        user, trusted = name_of(uid), uid in (0, os.geteuid())
        if user is None and not trusted:
            raise ForbiddenError(f"the user {uid}", "use this service without an account on this machine")
        return Identity(user=user or str(uid), uid=uid, admin=trusted or user in self.admins)

    def of_header(self, authorization: str | None) -> Identity:
        """Return the identity of a token's user: an admin only if the token was made so."""
        scheme, _, secret = (authorization or "").strip().partition(" ")
        if not authorization:
            raise IdentityError("there is no token in this request")
        if scheme.lower() != "bearer" or not secret.strip():
            raise IdentityError("there is no bearer token in this request")
        self._refresh()
        token = find(self._tokens, secret.strip(), time.time())
        if token is None:
            raise IdentityError("the token is unknown or has expired")
        return Identity(user=token.user, uid=_user_id(token.user), admin=token.admin)

    def _refresh(self) -> None:
        stamp = None
        with contextlib.suppress(OSError):
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        try:
            self._tokens = read_tokens(self._path)
        except (SettingsError, OSError) as error:
            # A file that cannot be read may be meant to revoke a token, so no token counts.
            self._tokens = []
            _log.error("tokens file refused", extra={"reason": str(error)})
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                return  # the next request reads it again, and may find a descriptor
        self._stamp = stamp


def name_of(uid: int) -> str | None:
    """Return the name of a Unix user; None for a number that belongs to no account."""
    return _name_of(uid, int(time.monotonic() / NAMES_LAST))


@lru_cache(maxsize=1024)
def _name_of(uid: int, period: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _user_id(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
