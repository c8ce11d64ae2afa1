"""The policy and the users' limits: what the settings say, and what admins chose since."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from slaq.config.service import ServiceSettings, UserLimits
from slaq.stores.sqlite import SqliteStore

#: The names under which the store keeps what was chosen.
_POLICY, _USERS = "policy", "users"


class Overrides:
    """The policy, and what each user may have. An admin's choice wins over the settings, also after a restart."""

    def __init__(self, store: SqliteStore, settings: ServiceSettings) -> None:
        self._store = store
        self._settings = settings
        #: Two names: the policy in the settings when an admin chose another, and the chosen one.
        self._replaced, self._chosen = json.loads(store.meta(_POLICY) or "[null, null]")
        #: Of the users whose limits an admin chose; everyone else's follow the settings.
        self._limits = {
            user: UserLimits(**limit) for user, limit in json.loads(store.meta(_USERS) or "{}").items()
        }

    def reset(self, settings: ServiceSettings) -> None:
        """Apply other settings."""
        self._settings = settings

    @property
    def policy(self) -> str:
        """The policy that an admin chose, unless the settings have named another since; else the settings'."""
        return str(self._chosen) if self._replaced == self._settings.policy else self._settings.policy

    def choose_policy(self, name: str) -> None:
        """Store an admin's choice of policy."""
        self._store.set_meta(_POLICY, json.dumps([self._settings.policy, name]))
        self._replaced, self._chosen = self._settings.policy, name

    @property
    def limits(self) -> Mapping[str, UserLimits]:
        """The limits of the users who have some of their own."""
        return {**self._settings.users, **self._limits}

    @property
    def usual(self) -> UserLimits:
        """The limits of everyone else."""
        return self._settings.defaults

    def limits_of(self, user: str) -> UserLimits:
        """Return the limits of a user."""
        return self._limits.get(user) or self._settings.users.get(user, self.usual)

    @property
    def sharing(self) -> dict[str, Any]:
        """How capacity is shared between users: the arguments of `BetweenOwners` beside the policy."""
        return {
            "weight": {user: limit.weight for user, limit in self.limits.items()},
            "most": {user: limit.max_cores for user, limit in self.limits.items()},
            "usual_weight": self.usual.weight,
            "usual_most": self.usual.max_cores,
        }

    def choose_limits(self, user: str, **changes: Any) -> None:
        """Store an admin's choice of a user's limits."""
        chosen = {**self._limits, user: replace(self.limits_of(user), **changes)}
        self._store.set_meta(_USERS, json.dumps({name: asdict(limit) for name, limit in chosen.items()}))
        self._limits = chosen
