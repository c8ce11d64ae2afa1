"""The functions that migration 2 calls to convert amounts from units to cores."""

import json
import sqlite3
from dataclasses import asdict
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

    def spec_in_cores(spec: str, submission: str) -> str:
        return json.dumps(_spec(json.loads(spec), json.loads(submission), cores_per_unit))

    connection.create_function("cores_per_unit", 0, lambda: cores_per_unit)
    connection.create_function("decision_in_cores", 1, decision_in_cores)
    connection.create_function("credits_in_cores", 1, credits_in_cores)
    connection.create_function("spec_in_cores", 2, spec_in_cores)
    connection.create_function("submission_renamed", 1, _submission)


def _spec(spec: dict[str, Any], submission: dict[str, Any], cores_per_unit: float) -> dict[str, Any]:
    """Return a spec in cores."""
    most = spec.pop("max_units", None)
    demand = Demand(
        least=spec.pop("min_units", 0) * cores_per_unit,
        most=None if most is None else _most(most, submission.get("max_cores"), cores_per_unit),
    )
    reserved = spec.pop("reserved_units", None)
    return spec | {
        "demand": asdict(demand),
        "reserved": None if reserved is None else reserved * cores_per_unit,
        "trains": spec.pop("kind", "ml") == "ml",
        "stop_at": spec.pop("wanted", None),
    }


def _most(units: int, asked: float | None, cores_per_unit: float) -> float:
    """Return the cores that a job's units were: as its owner asked, unless that was another number of units.

    The owner may have changed the units since.
    """
    if asked is not None and max(1, round(asked / cores_per_unit)) == units:
        return asked
    return units * cores_per_unit


def _submission(text: str) -> str:
    """Return a submission with earlier option names replaced by the present ones."""
    submission = json.loads(text)
    if "by" in submission:
        submission["deadline"] = submission.pop("by")
    return json.dumps(submission)
