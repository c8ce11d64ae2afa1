-- How many iterations a job says it will make in all.

ALTER TABLE jobs ADD COLUMN total INTEGER;
