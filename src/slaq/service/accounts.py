"""The Unix users behind the users of the service: what a job runs as, and with what environment."""

import os
import pwd
from dataclasses import dataclass

from slaq.core.errors import CommandError
from slaq.engines.processes.records import RunAs

#: What a job sees of the system unless its owner says otherwise; never the service's own environment.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One Unix user."""

    name: str
    run_as: RunAs
    home: str
    shell: str

    def environment(self) -> dict[str, str]:
        """Return what a job of this user finds in its environment at least."""
        return {
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": self.shell,
            "PATH": os.environ.get("PATH", PATH) if self.run_as.uid == os.getuid() else PATH,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }


def name_of(uid: int) -> str:
    """Return what to call a Unix user; its number where it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def account_of(user: str) -> Account:
    """Return the Unix user that jobs of this user of the service run as.

    A service that is not root runs everything as itself. One that is root runs a job as its submitter, and
    none as a user that this machine does not know.
    """
    entry = pwd.getpwuid(os.getuid()) if os.getuid() else _entry(user)
    return Account(
        name=entry.pw_name,
        run_as=RunAs(
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        ),
        home=entry.pw_dir,
        shell=entry.pw_shell,
    )


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise CommandError(
            f"this service runs jobs as their submitters, and there is no user {user!r} on this machine",
            f"have an administrator make one: useradd {user}",
        ) from None
