"""The functions that migration 2 calls to convert amounts from units to cores."""

import json
import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slaq.core.demand import Demand
from slaq.stores.sqlite.packing import pack_values, unpack_values

#: Arrays of a decision that held units, with their present names.
_AMOUNTS = {
    "units": "cores",
    "fair_share": "fair_share",
    "sure": "sure",
    "most": "most",
    "owner_share": "owner_share",
}
#: What was owed after a decision, in units.
_CREDITS = ("credit", "owner_credit")
#: This many units or more meant no limit.
_UNLIMITED = 2**40


def register(connection: sqlite3.Connection, cores_per_unit: float) -> None:
    """Register the functions with a connection; `cores_per_unit` is the former size of a unit."""

    def decision_in_cores(body: bytes) -> bytes:
        values = unpack_values(body)
        limitless = np.asarray(values.get("most", ())) >= _UNLIMITED
        for old, new in _AMOUNTS.items():
            if old in values:
                values[new] = np.asarray(values.pop(old), dtype=np.float64) * cores_per_unit
        if limitless.any():
            values["most"][limitless] = np.inf
        values["capacity"] = values["capacity"] * cores_per_unit
        return pack_values(values | {"unit": cores_per_unit})

    def credits_in_cores(packed: bytes | None) -> bytes | None:
        if packed is None:
            return None
        values = unpack_values(packed)
        owed = {name: values[name] * cores_per_unit for name in _CREDITS}
        return pack_values(owed | {"size_credit": np.zeros(len(values["credit"]))})

    def spec_in_cores(spec: str, submission: str, capacity: float | None) -> str:
        asked = json.loads(submission).get("max_cores")
        limit = _Limit(asked=asked, cores_per_unit=cores_per_unit, capacity=capacity)
        return json.dumps(_spec(json.loads(spec), limit))

    connection.create_function("cores_per_unit", 0, lambda: cores_per_unit)
    connection.create_function("decision_in_cores", 1, decision_in_cores)
    connection.create_function("credits_in_cores", 1, credits_in_cores)
    connection.create_function("spec_in_cores", 3, spec_in_cores)
    connection.create_function("submission_renamed", 1, _submission)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """Converts the limit of one job, which version 1 stored in units."""

    #: What the owner asked for; None for no limit.
    asked: float | None
    cores_per_unit: float
    #: The cores of the last decision; None if there was none.
    capacity: float | None

    def in_cores(self, units: int) -> float | None:
        """Return the limit: as the owner asked, unless the units show that the owner has changed the limit since.

        Version 1 reduced every limit to the capacity, and gave a job without a limit the capacity.
        """
        cores = units * self.cores_per_unit
        if self.capacity is not None and abs(cores - self.capacity) < 0.5 * self.cores_per_unit:
            return None if self.asked is None else max(self.asked, self.capacity)
        if self.asked is not None and max(1, round(self.asked / self.cores_per_unit)) == units:
            return self.asked
        return cores


def _spec(spec: dict[str, Any], limit: _Limit) -> dict[str, Any]:
    """Return a spec in cores."""
    most = spec.pop("max_units", None)
    demand = Demand(
        least=spec.pop("min_units", 0) * limit.cores_per_unit,
        most=None if most is None else limit.in_cores(most),
    )
    reserved = spec.pop("reserved_units", None)
    return spec | {
        "demand": asdict(demand),
        "reserved": None if reserved is None else reserved * limit.cores_per_unit,
        "trains": spec.pop("kind", "ml") == "ml",
        "stop_at": spec.pop("wanted", None),
    }


def _submission(text: str) -> str:
    """Return a submission with earlier option names replaced by the present ones."""
    submission = json.loads(text)
    if "by" in submission:
        submission["deadline"] = submission.pop("by")
    return json.dumps(submission)
