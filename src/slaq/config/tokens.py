"""The tokens for TCP: created, kept as hashes in tokens.toml, looked up and removed."""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from pathlib import Path

from slaq.config.section import Diagnostics, Section
from slaq.config.toml import read_toml
from slaq.core.errors import JobsFileError, SettingsError, TokenError
from slaq.durable import write_durably

#: Lets scanners for secrets find tokens.
PREFIX = "slaq_"
#: Names need no quoting in files, lists and logs.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEAD = "# Tokens of slaq, as hashes; `slaq token` makes and removes them. The service reads this at each change.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token as stored in the file: its user and the hash of its secret."""

    name: str
    user: str
    sha256: str
    admin: bool = False
    #: Unix seconds; None for never.
    expires: float | None = None

    def in_force(self, now: float) -> bool:
        """Return whether the token is still valid."""
        return self.expires is None or now < self.expires


def digest(secret: str) -> str:
    """Return the hash of a token; a token is long and random, so that a plain hash does not reveal it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find(tokens: Sequence[Token], secret: str, now: float) -> Token | None:
    """Return the valid token with this secret, or None; takes the same time for every token."""
    wanted = digest(secret)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, wanted):
            found = token
    return found if found is not None and found.in_force(now) else None


def make_token(path: Path, token: Token) -> str:
    """Add a token; return its secret, which is not kept."""
    for what, text in (("name", token.name), ("user", token.user)):
        if not NAME.fullmatch(text):
            raise TokenError(
                f"{text!r} cannot be the {what} of a token",
                "use up to 64 letters, digits, and . _ - @ inside",
            )
    secret = PREFIX + secrets.token_urlsafe(32)
    with _alone(path):
        tokens = read_tokens(path)
        if any(other.name == token.name for other in tokens):
            raise TokenError(
                f"there is a token {token.name!r} already", "revoke it first, or choose another name"
            )
        _write(path, [*tokens, replace(token, sha256=digest(secret))])
    return secret


def remove_token(path: Path, name: str) -> Token:
    """Remove a token, so that it is no longer valid."""
    with _alone(path):
        tokens = read_tokens(path)
        for token in tokens:
            if token.name == name:
                _write(path, [other for other in tokens if other is not token])
                return token
    known = ", ".join(token.name for token in tokens) or "none"
    raise TokenError(f"there is no token {name!r}", f"known: {known}")


def read_tokens(path: Path) -> list[Token]:
    """Return the tokens of the file; an empty list if there is no file. Raises SettingsError with every mistake."""
    try:
        if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            found = "other users can write the file, and so give themselves access"
            raise SettingsError([(str(path), found, f"run chmod go-w {path}")])
        text, values = read_toml(path)
    except FileNotFoundError:
        return []
    except JobsFileError as error:
        raise _as_settings(error) from None
    diagnostics = Diagnostics(path, text)
    top = Section(values, (), diagnostics)
    tables = top.take("token", "tables [[token]]", list) or []
    tokens = [_read(Section(table, ("token", index), diagnostics)) for index, table in enumerate(tables)]
    top.close("a file of tokens")
    names = [token.name for token in tokens]
    for index, name in enumerate(names):
        if name in names[:index]:
            diagnostics.add(("token", index, "name"), f"there are two tokens {name!r}", "rename one of them")
    try:
        diagnostics.raise_any()
    except JobsFileError as error:
        raise _as_settings(error) from None
    return tokens


def _read(section: Section) -> Token:
    wanted = "up to 64 letters, digits, and . _ - @ inside"
    given: dict[str, str] = {}
    for key in ("name", "user"):
        text = section.text(key, wanted)
        if text is not None and not NAME.fullmatch(text):
            section.note(key, f"{key} is {text!r}", f"give {wanted}")
        elif text is None and not section.had(key):
            section.note(key, f"a token has no {key}", f"give {wanted}")
        given[key] = text or ""
    hashed = section.text("sha256", "the hash that `slaq token` printed") or ""
    if not _DIGEST.fullmatch(hashed):
        section.note("sha256", "sha256 is not a SHA-256 digest", "give 64 hexadecimal digits in lower case")
    admin = bool(section.take("admin", "true or false", bool))
    token = Token(**given, sha256=hashed, admin=admin, expires=_moment(section))
    section.close("[[token]]")
    return token


def _moment(section: Section) -> float | None:
    wanted = "a date such as 2030-01-31 or a time such as 2030-01-31T12:00:00Z"
    value = section.take("expires", wanted, date, datetime)
    if value is None:
        return None
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    # A time without a zone means the same on every machine: UTC.
    return value.timestamp() if value.tzinfo else value.replace(tzinfo=UTC).timestamp()


def _as_settings(error: JobsFileError) -> SettingsError:
    return SettingsError(
        [(f"{error.path}, line {line}", found, remedy) for line, found, remedy in error.mistakes]
    )


def _write(path: Path, tokens: Sequence[Token]) -> None:
    """Replace the file in one step, readable by its owner alone."""
    write_durably(path, [(_HEAD + "".join(map(_table, tokens))).encode()])


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep others from changing the file meanwhile, so that no token is lost and none comes back."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _table(token: Token) -> str:
    lines = [f'name = "{token.name}"', f'user = "{token.user}"', f'sha256 = "{token.sha256}"']
    if token.admin:
        lines.append("admin = true")
    if token.expires is not None:
        lines.append(f"expires = {datetime.fromtimestamp(token.expires, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return "\n[[token]]\n" + "\n".join(lines) + "\n"
