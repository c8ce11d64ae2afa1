-- Amounts become cores: real numbers that mean the same on every machine. The functions are those of
-- slaq.stores.sqlite.cores_migration, which knows how many cores a unit was.

ALTER TABLE jobs RENAME COLUMN units TO cores;
UPDATE jobs SET cores = cores * cores_per_unit();

ALTER TABLE allocations RENAME COLUMN units TO cores;
UPDATE allocations SET cores = cores * cores_per_unit();

UPDATE decisions
SET capacity = capacity * cores_per_unit(), body = decision_in_cores(body), credits = credits_in_cores(credits);

UPDATE events
SET body = json_set(body, '$.capacity', json_extract(body, '$.capacity') * cores_per_unit())
WHERE kind = 'capacity';

UPDATE requests
SET spec = spec_in_cores(spec, submission, (SELECT capacity FROM decisions ORDER BY seq DESC LIMIT 1)),
    submission = submission_renamed(submission);

-- The scheduler reads all curves again once: its snapshot was in units.
DELETE FROM snapshots;
