"""`slaq resume`: continues paused jobs."""

from slaq.cli.verbs.job_actions import acting

command = acting("resume", """Continue each paused JOB from where it stopped.""")
