"""Jobs on the cores of this machine: a driver process per job, a worker process per core, no daemon."""
