"""What a running job says it can use now: checked, by the definition of a job's options, wherever it is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from slaq.core.demand import Demand
from slaq.core.errors import JobOptionError
from slaq.jobs.options import FIT, MOST_CORES, conflict_in

#: The least of a job that does not say it: no owner asks for more, so that it stays as asked.
AS_ASKED = MOST_CORES


def demand_said(
    min_cores: float | None = None,
    max_cores: float | None = None,
    sizes: str | Sequence[float] | None = None,
) -> Demand:
    """Return what a job says, as a demand; raises JobOptionError. What it leaves out is as its owner asked."""
    given = {"min_cores": min_cores, "max_cores": max_cores, "sizes": sizes}
    said = FIT.read({name: value for name, value in given.items() if value is not None})
    conflict = conflict_in(said)
    if conflict is not None:
        raise conflict
    return Demand(
        least=said.get("min_cores", AS_ASKED), most=said.get("max_cores"), sizes=said.get("sizes", "any")
    )


def read_demand(said: object) -> Demand | None:
    """Return the demand in what a job wrote, parsed from JSON; None where it makes no sense."""
    if not isinstance(said, Mapping):
        return None
    try:
        return demand_said(said.get("min_cores"), said.get("max_cores"), said.get("sizes"))
    except (JobOptionError, RecursionError):
        return None


def written_demand(demand: Demand) -> dict[str, Any]:
    """Return a demand as a job writes it; the inverse of `read_demand`."""
    least = None if demand.least >= AS_ASKED else demand.least
    return {"min_cores": least, "max_cores": demand.most, "sizes": demand.sizes}
