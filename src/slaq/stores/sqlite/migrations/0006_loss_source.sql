-- Where the losses of a job come from, and what is wrong with that, in words.

ALTER TABLE jobs ADD COLUMN loss_source TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN loss_trouble TEXT NOT NULL DEFAULT '';
