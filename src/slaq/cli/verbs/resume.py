"""`slaq resume`: continues paused jobs."""

from slaq.cli.verbs.job_actions import command_for

command = command_for("resume", """Continue each paused JOB from where it stopped.""")
