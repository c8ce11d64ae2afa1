-- The jobs of a grid are a group, found by its name and its owner among any number of other jobs.

ALTER TABLE jobs ADD COLUMN group_name TEXT;
CREATE INDEX jobs_by_group ON jobs (group_name, owner) WHERE group_name IS NOT NULL;
