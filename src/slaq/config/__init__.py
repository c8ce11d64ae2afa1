"""The jobs file: what `slaq run` is to run, read from TOML and checked as a whole before anything starts."""

from slaq.config.reading import read_job, read_jobs_file
from slaq.config.values import (
    AlgorithmWork,
    ClusterTable,
    CommandWork,
    FitWork,
    JobsFile,
    JobTable,
    ProgramWork,
    Recipe,
    Vocabulary,
    Work,
)

__all__ = [
    "AlgorithmWork",
    "ClusterTable",
    "CommandWork",
    "FitWork",
    "JobTable",
    "JobsFile",
    "ProgramWork",
    "Recipe",
    "Vocabulary",
    "Work",
    "read_job",
    "read_jobs_file",
]
