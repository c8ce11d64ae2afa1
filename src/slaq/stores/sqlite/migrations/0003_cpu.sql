-- CPU seconds are no longer only those of losses: `cpu_seconds` is all that is known, and `cpu_observed` what it was
-- at the start of the last attempt with the CPU seconds of the losses since.

ALTER TABLE jobs ADD COLUMN cpu_observed REAL NOT NULL DEFAULT 0.0;
UPDATE jobs SET cpu_observed = cpu_seconds;
