-- Jobs, what they reported, what was decided. Times are seconds on the scheduler's clock, Unix seconds in a service.

-- One row: where the log of events and decisions has come to, the latest moment stored, the last notice number.
CREATE TABLE counters (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    time REAL NOT NULL,
    notice INTEGER NOT NULL
);
INSERT INTO counters (id, seq, time, notice) VALUES (1, 0, 0.0, 0);

-- What the service remembers under a name of its own.
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Where each job stands: small rows, because most of them are rewritten once an epoch.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    arrival REAL NOT NULL,
    tags TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    paused INTEGER NOT NULL DEFAULT 0,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    attempt_first_iteration INTEGER NOT NULL DEFAULT 0,
    attempt_log_start INTEGER NOT NULL DEFAULT 0,
    report_offset INTEGER NOT NULL DEFAULT 0,
    -- Which of its curves is the present one, and where in the log that began: a job run again from the
    -- beginning begins another.
    curve INTEGER NOT NULL DEFAULT 0,
    curve_seq INTEGER NOT NULL DEFAULT 0,
    iteration INTEGER NOT NULL DEFAULT -1,
    -- Losses that are no number are NULL, here and below.
    first_loss REAL,
    loss REAL,
    best_loss REAL,
    cpu_seconds REAL NOT NULL DEFAULT 0.0,
    reduction REAL NOT NULL DEFAULT 0.0,
    units INTEGER NOT NULL DEFAULT 0,
    -- Where in the log an iteration was last reported after a later one.
    late_seq INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_arrival ON jobs (state, arrival);
CREATE INDEX jobs_by_owner ON jobs (owner);

-- What each job asked for, as JSON: large, and seldom changed.
CREATE TABLE requests (
    job INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    submission TEXT NOT NULL
);

CREATE TABLE observations (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    curve INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    loss REAL,
    cpu_seconds REAL,
    wall_seconds REAL,
    -- JSON; NULL where none came with the loss.
    metrics TEXT,
    PRIMARY KEY (job, curve, iteration)
) WITHOUT ROWID;

-- Every other event; `job` is NULL for those of the cluster.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    job INTEGER REFERENCES jobs (number) ON DELETE CASCADE,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX events_by_job ON events (job, seq);

-- Which events came together: the place in the log of the last of them.
CREATE TABLE batches (
    last_seq INTEGER PRIMARY KEY
);

-- Units held from a moment on; only changes are kept.
CREATE TABLE allocations (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    at REAL NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (job, at)
) WITHOUT ROWID;

CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    time REAL NOT NULL,
    capacity INTEGER NOT NULL,
    -- The decision, and what it left owed, as packed by slaq.stores.sqlite.packing.
    body BLOB NOT NULL,
    credits BLOB
);
CREATE INDEX decisions_by_epoch ON decisions (epoch, seq);

-- One row: the active jobs as the scheduler held them, so that only what came after has to be read again.
CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
