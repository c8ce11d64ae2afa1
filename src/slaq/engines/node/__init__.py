"""What runs jobs on one machine: one runner for each kind of job."""
