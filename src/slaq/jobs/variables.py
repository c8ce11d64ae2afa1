"""The environment variables of a job; this module imports nothing, because every report loads it."""

#: The file that the job's reports are appended to.
REPORTS = "SLAQ_REPORTS"
#: The read-only file that says what the job holds now.
SHARE = "SLAQ_SHARE"
#: The id of the job that a process reports to, and the address of its service.
JOB, URL = "SLAQ_JOB", "SLAQ_URL"
#: In jobs of a service: the job's own folder, which stays over restarts; how often the job was started; the number
#: of the next loss that is new to the service.
FOLDER, ATTEMPT, ITERATION = "SLAQ_JOB_DIR", "SLAQ_ATTEMPT", "SLAQ_ITERATION"
#: In commands that are run when a job has ended: how it ended and why, its best loss, and how many it reported.
STATE, REASON, BEST_LOSS, LOSSES = "SLAQ_STATE", "SLAQ_REASON", "SLAQ_BEST_LOSS", "SLAQ_LOSSES"
