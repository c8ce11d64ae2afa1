"""Run a workload under several policies, and show the outcome as a table, JSON, a picture or a page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.bootstrap import Run, simulate
from slaq.cli.display.outputs import announce
from slaq.cli.display.terminal import progress, show
from slaq.core.outcome import Outcome
from slaq.simulation.workload import Workload

#: The policy that the others are compared with, if it is among them.
USUAL_BASELINE = "fair"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """The capacity, epoch and forecaster of a simulation."""

    #: A constant number of cores, or (seconds, cores) pairs: the cores from each moment on.
    capacity: float | Sequence[tuple[float, float]]
    epoch_seconds: float
    forecaster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The runs of one workload, by policy."""

    runs: Mapping[str, Run]

    @property
    def baseline(self) -> str:
        """The policy that the others are compared with: fair if it was run, else the first."""
        return USUAL_BASELINE if USUAL_BASELINE in self.runs else next(iter(self.runs))

    def as_json(self) -> str:
        """Return the summary of a single policy, or an object of summaries by policy."""
        summaries = {policy: run.outcome.as_json() for policy, run in self.runs.items()}
        only = next(iter(summaries.values()))
        return json.dumps(only if len(summaries) == 1 else summaries, indent=2, allow_nan=False)

    def print_table(self) -> None:
        """Print one column per policy, with the change against the baseline."""
        from rich.table import Table

        from slaq.reports.measures import MEASURES

        summaries = {policy: run.outcome.as_json() for policy, run in self.runs.items()}
        before = summaries[self.baseline]
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for policy in summaries:
            table.add_column(policy, justify="right")
            if policy != self.baseline:
                table.add_column("", style="cyan", justify="right")
        for measure in MEASURES:
            cells = []
            for policy, summary in summaries.items():
                cells.append(measure.text(summary))
                if policy != self.baseline:
                    cells.append(measure.change(summary, before))
            table.add_row(measure.name, *cells)
        if len(summaries) > 1:
            table.caption = f"Changes are against {self.baseline}."
            table.caption_justify = "left"
        show(table)

    def write_plot(self, path: Path) -> None:
        """Draw the runs into the file at `path`."""
        from slaq.reports.charts import overview, save
        from slaq.reports.story import tell

        histories = {policy: run.history for policy, run in self.runs.items()}
        save(overview(self._outcomes(), tell(histories, self.baseline)), path)
        announce("picture", path)

    def write_report(
        self,
        path: Path,
        *,
        title: str,
        facts: Mapping[str, str],
        command: str,
        jobs: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Write the HTML page about the runs, and about these jobs, to `path`."""
        from slaq import __version__
        from slaq.reports.page import ReportSetting, Results, render
        from slaq.reports.story import tell

        histories = {policy: run.history for policy, run in self.runs.items()}
        results = Results(
            baseline=self.baseline,
            outcomes=self._outcomes(),
            story=tell(histories, self.baseline),
            jobs=jobs,
        )
        setting = ReportSetting(title=title, facts=facts, command=command, version=__version__)
        path.write_text(render(setting, results), encoding="utf-8")
        announce("report", path)

    def _outcomes(self) -> dict[str, Outcome]:
        return {policy: run.outcome for policy, run in self.runs.items()}


def compare(workload: Workload, policies: Sequence[str], cluster: SimulatedCluster) -> Comparison:
    """Run the workload under each policy, with a progress bar on a terminal."""
    runs = {}
    with progress(stages=len(policies)) as begin:
        for policy in policies:
            runs[policy] = simulate(
                workload,
                policy=policy,
                capacity=cluster.capacity,
                epoch_seconds=cluster.epoch_seconds,
                forecaster=cluster.forecaster,
                progress=begin(policy),
            )
    return Comparison(runs=runs)
