"""The demand that a running job reports, checked against the definition of the options."""

from collections.abc import Mapping
from typing import Any, Unpack, cast

from slaq.core.demand import Demand
from slaq.core.errors import JobOptionError
from slaq.jobs.options import DEMAND, MOST_CORES, DemandOptions, conflict_in

#: Stands for an unreported minimum; larger than any, so the owner's value applies.
AS_ASKED = MOST_CORES


def reported_demand(**reported: Unpack[DemandOptions]) -> Demand:
    """Return the demand that a job reports; raises a SlaqError. None stands for what the owner asked for."""
    given = DEMAND.read({name: value for name, value in reported.items() if value is not None})
    conflict = conflict_in(given)
    if conflict is not None:
        raise conflict
    return Demand(
        least=given.get("min_cores", AS_ASKED),
        most=given.get("max_cores"),
        sizes=given.get("sizes", "any"),
        worth=given.get("worth"),
        change_seconds=given.get("change_seconds"),
    )


def read_demand(written: object) -> Demand | None:
    """Return the demand that a job wrote, parsed from JSON; None if it is invalid."""
    if not isinstance(written, Mapping):
        return None
    known = {name: written.get(name) for name in DEMAND.options}
    try:
        return reported_demand(**cast(DemandOptions, known))
    except (JobOptionError, RecursionError):
        return None


def written_demand(demand: Demand) -> dict[str, Any]:
    """Return a demand as a job writes it; the inverse of `read_demand`."""
    least = None if demand.least >= AS_ASKED else demand.least
    return {
        "min_cores": least,
        "max_cores": demand.most,
        "sizes": demand.sizes,
        "worth": demand.worth,
        "change_seconds": demand.change_seconds,
    }
