-- The threads that a job got when it last began, and why; and the most memory that it took, in bytes.

ALTER TABLE jobs ADD COLUMN threads INTEGER;
ALTER TABLE jobs ADD COLUMN threads_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN memory_peak INTEGER NOT NULL DEFAULT 0;
