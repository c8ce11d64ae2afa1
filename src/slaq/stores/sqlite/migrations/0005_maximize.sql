-- Whether a job's losses are numbers that should rise, so that its best one is the highest.

ALTER TABLE jobs ADD COLUMN maximize INTEGER NOT NULL DEFAULT 0;
