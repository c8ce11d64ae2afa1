-- The statements of the durable store that take more than a line; read by slaq.stores.sqlite.queries.

-- name: submit
INSERT INTO jobs (id, owner, arrival, tags, maximize, group_name, state, submitted_at)
VALUES (?, ?, ?, ?, ?, ?, 'queued', ?)
ON CONFLICT (id) DO NOTHING;

-- name: queued
SELECT spec
FROM jobs JOIN requests ON job = number
WHERE state = 'queued' AND NOT paused
ORDER BY arrival, number;

-- name: started
UPDATE jobs SET state = 'running', started_at = COALESCE(started_at, ?) WHERE id = ?;

-- name: begin_attempt
UPDATE jobs
SET state = 'running', reason = '', started_at = COALESCE(started_at, :at), attempts = attempts + 1,
    attempt_first_iteration = :first_iteration, attempt_log_start = :log_start,
    cpu_observed = cpu_seconds
WHERE number = :number;

-- name: begin_curve
UPDATE jobs
SET curve = curve + 1, curve_seq = :seq, iteration = -1, first_loss = NULL, loss = NULL, best_loss = NULL,
    reduction = 0.0, late_seq = 0
WHERE number = :number;

-- name: progress
SELECT id, number, curve, state, maximize, cores, iteration, first_loss, loss, best_loss, cpu_observed, late_seq,
    report_offset
FROM jobs
WHERE id IN (SELECT value FROM json_each(?));

-- name: owners
SELECT id, owner FROM jobs WHERE id IN (SELECT value FROM json_each(?));

-- name: keep_observation
INSERT INTO observations (job, curve, iteration, seq, at, loss, cpu_seconds, wall_seconds, metrics)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: keep_event
INSERT INTO events (seq, job, at, kind, body) VALUES (?, ?, ?, ?, ?);

-- name: keep_progress
UPDATE jobs
SET iteration = ?, first_loss = ?, loss = ?, best_loss = ?, cpu_observed = ?,
    cpu_seconds = MAX(cpu_seconds, ?), late_seq = ?, report_offset = ?
WHERE number = ?;

-- name: keep_cpu
UPDATE jobs SET cpu_seconds = MAX(cpu_seconds, ?), memory_peak = MAX(memory_peak, ?) WHERE number = ?;

-- name: keep_threads
UPDATE jobs SET threads = ?, threads_reason = ? WHERE number = ?;

-- name: keep_source
UPDATE jobs SET loss_source = ?, loss_trouble = ? WHERE number = ?;

-- name: end_job
UPDATE jobs
SET state = ?, reason = ?, ended_at = ?, paused = 0, cores = 0
WHERE number = ?;

-- name: allocate
INSERT INTO allocations (job, at, cores) VALUES (?, ?, ?)
ON CONFLICT (job, at) DO UPDATE SET cores = excluded.cores;

-- name: holdings
SELECT id, number, cores FROM jobs WHERE state IN ('queued', 'running', 'paused');

-- name: record
INSERT INTO decisions (seq, epoch, time, capacity, body, credits) VALUES (?, ?, ?, ?, ?, ?);

-- name: snapshot
INSERT INTO snapshots (id, seq, at, body) VALUES (1, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, at = excluded.at, body = excluded.body;

-- name: unfinished_curves
SELECT id, number, curve, late_seq FROM jobs WHERE state IN ('queued', 'running', 'paused') AND iteration >= 0;

-- name: curve_backwards
SELECT seq, iteration, at, loss, cpu_seconds, wall_seconds, metrics
FROM observations
WHERE job = ? AND curve = ?
ORDER BY iteration DESC;

-- name: curve_after
SELECT seq, iteration, at, loss, cpu_seconds, wall_seconds, metrics
FROM observations
WHERE job = ? AND curve = ? AND seq > ?;

-- name: others_since
SELECT seq, id, events.at, kind, body
FROM events LEFT JOIN jobs ON number = job
WHERE seq > ?
ORDER BY seq;

-- name: all_curves
SELECT seq, iteration, at, loss, cpu_seconds, wall_seconds, metrics
FROM observations
WHERE job = ?;

-- name: observations
SELECT iteration, at, loss, cpu_seconds, wall_seconds, metrics
FROM observations
WHERE job = :job AND curve = :curve AND iteration > :after
    AND (
        :every_nth = 1
        OR iteration % :every_nth = 0
        OR iteration = :last
        -- Jobs may leave numbers out: the first loss of every n iterations stands for them.
        OR NOT EXISTS (
            SELECT 1
            FROM observations AS earlier
            WHERE earlier.job = :job AND earlier.curve = :curve
                AND earlier.iteration >= observations.iteration - observations.iteration % :every_nth
                AND earlier.iteration < observations.iteration
        )
    )
ORDER BY iteration
LIMIT :limit;

-- name: curves
-- The first loss and the last one are always among them.
SELECT id, observations.iteration, at, observations.loss, observations.cpu_seconds, wall_seconds
FROM jobs CROSS JOIN observations ON job = number AND observations.curve = jobs.curve
WHERE id IN (SELECT value FROM json_each(:ids))
    AND (
        jobs.iteration < :most
        OR observations.iteration % (jobs.iteration / :most + 1) = 0
        OR observations.iteration = jobs.iteration
        OR NOT EXISTS (
            SELECT 1
            FROM observations AS earlier
            WHERE earlier.job = number AND earlier.curve = jobs.curve
                AND earlier.iteration < observations.iteration
                AND earlier.iteration
                    >= observations.iteration - observations.iteration % (jobs.iteration / :most + 1)
        )
    )
ORDER BY number, observations.iteration;

-- name: last_number
-- "." is the character after "-", so that the ids between are those that begin with the name and a dash.
SELECT max(CAST(substr(id, length(:name) + 2) AS INTEGER))
FROM jobs
WHERE id > :name || '-' AND id < :name || '.' AND substr(id, length(:name) + 2) NOT GLOB '*[^0-9]*'
    AND length(id) <= length(:name) + 16;

-- name: allocations
SELECT at, cores
FROM (SELECT at, cores FROM allocations WHERE job = :job AND at >= :since ORDER BY at LIMIT :limit)
ORDER BY at;

-- name: keep_cores
UPDATE jobs
SET cores = ?, reduction = COALESCE(MAX(0.0, MIN(1.0, ?)), reduction)
WHERE number = ?;

-- name: folders_to_remove
SELECT value FROM meta WHERE substr(key, 1, length(?1)) = ?1;

-- name: prunable_jobs
SELECT number, id
FROM jobs
WHERE state NOT IN ('queued', 'running', 'paused')
    AND (:before IS NULL OR COALESCE(ended_at, submitted_at) < :before)
    AND number NOT IN (
        SELECT number
        FROM jobs
        WHERE state NOT IN ('queued', 'running', 'paused')
        ORDER BY COALESCE(ended_at, submitted_at) DESC, number DESC
        LIMIT :keep
    )
ORDER BY COALESCE(ended_at, submitted_at), number;

-- name: prunable_decisions
SELECT max(seq)
FROM decisions
WHERE (:before IS NULL OR time < :before)
    AND seq < (SELECT min(seq) FROM (SELECT seq FROM decisions ORDER BY seq DESC LIMIT :keep))
    AND seq <= COALESCE((SELECT seq FROM snapshots), seq);

-- name: prune_batches
-- Which events came together is of use after the snapshot, and as far back as an unfinished job has reported.
DELETE FROM batches
WHERE last_seq <= (SELECT seq FROM snapshots)
    AND last_seq < COALESCE(
        (
            SELECT min(seq)
            FROM jobs JOIN observations ON observations.job = number AND observations.curve = jobs.curve
            WHERE state IN ('queued', 'running', 'paused')
                AND observations.iteration = (
                    SELECT min(iteration) FROM observations WHERE job = number AND curve = jobs.curve
                )
        ),
        (SELECT seq FROM counters)
    );

-- name: prune_decisions
DELETE FROM decisions
WHERE seq IN (SELECT seq FROM decisions WHERE seq <= ? ORDER BY seq LIMIT ?);
