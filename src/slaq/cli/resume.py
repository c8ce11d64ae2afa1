"""`slaq resume`: lets paused jobs go on."""

from slaq.cli.acting import acting

command = acting("resume", """Let each paused JOB go on from where it stands.""")
