"""How capacity is shared out: what the settings say, and what admins chose since, which survives a restart."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from slaq.config.service import ServiceSettings, UserLimits
from slaq.stores.sqlite import SqliteStore

#: The names under which the store keeps what was chosen.
_POLICY, _USERS = "policy", "users"


class Preferences:
    """The policy, and what each user may have. A choice of an admin's wins over the settings."""

    def __init__(self, store: SqliteStore, settings: ServiceSettings) -> None:
        self._store = store
        self._settings = settings
        #: The policy of the settings when another was chosen, and that other.
        self._replaced, self._chosen = json.loads(store.meta(_POLICY) or "[null, null]")
        #: Only of those users whose limits were chosen: everyone else's follow the settings.
        self._limits = {
            user: UserLimits(**limit) for user, limit in json.loads(store.meta(_USERS) or "{}").items()
        }

    def reset(self, settings: ServiceSettings) -> None:
        """Take up other settings."""
        self._settings = settings

    @property
    def policy(self) -> str:
        """The policy that was chosen, unless the settings have changed since; else theirs."""
        return str(self._chosen) if self._replaced == self._settings.policy else self._settings.policy

    def choose_policy(self, name: str) -> None:
        """Keep a choice of policy."""
        self._store.set_meta(_POLICY, json.dumps([self._settings.policy, name]))
        self._replaced, self._chosen = self._settings.policy, name

    @property
    def limits(self) -> Mapping[str, UserLimits]:
        """What the users may have who have limits of their own."""
        return {**self._settings.users, **self._limits}

    @property
    def usual(self) -> UserLimits:
        """What everyone else may have."""
        return self._settings.defaults

    def limits_of(self, user: str) -> UserLimits:
        """Return what a user may have."""
        return self._limits.get(user) or self._settings.users.get(user, self.usual)

    def choose_limits(self, user: str, **changes: Any) -> None:
        """Keep a choice of a user's limits."""
        chosen = {**self._limits, user: replace(self.limits_of(user), **changes)}
        self._store.set_meta(_USERS, json.dumps({name: asdict(limit) for name, limit in chosen.items()}))
        self._limits = chosen
