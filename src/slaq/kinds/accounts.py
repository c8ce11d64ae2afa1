"""The Unix users behind the users of the service: what a job runs as, and with what environment."""

import os
import pwd
from dataclasses import dataclass

from slaq.core.errors import CommandError
from slaq.engines.node.commands.records import RunAs

#: The search path of a job whose owner gives none and is not the service's user.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One Unix user."""

    name: str
    run_as: RunAs
    home: str
    shell: str

    def environment(self) -> dict[str, str]:
        """Return the variables that every job of this user has; nothing else of the service's environment."""
        own = self.run_as.uid == os.getuid()
        return {
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": self.shell,
            "PATH": os.environ.get("PATH", PATH) if own else PATH,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }


def account_of(user: str) -> Account:
    """Return the Unix user that jobs of this user of the service run as.

    A service that is not root runs every job as itself. One that is root runs a job as its submitter, and
    raises where this machine does not know that user.
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
            f"ask an administrator to create the user: useradd {user}",
        ) from None
