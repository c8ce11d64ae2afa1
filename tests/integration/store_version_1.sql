BEGIN TRANSACTION;
CREATE TABLE allocations (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    at REAL NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (job, at)
) WITHOUT ROWID;
INSERT INTO "allocations" VALUES(2,21.0,4);
CREATE TABLE batches (
    last_seq INTEGER PRIMARY KEY
);
INSERT INTO "batches" VALUES(10);
CREATE TABLE counters (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    time REAL NOT NULL,
    notice INTEGER NOT NULL
);
INSERT INTO "counters" VALUES(1,10,21.0,10);
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    time REAL NOT NULL,
    capacity INTEGER NOT NULL,
    -- The decision, and what it left owed, as packed by slaq.stores.sqlite.packing.
    body BLOB NOT NULL,
    credits BLOB
);
INSERT INTO "decisions" VALUES(9,7,21.0,4,X'78018D8E5D0AC23010842B7890B2CF22491114113C482912D3982EB44948EA4FA9BDB34770DBBE548A625E76E69BD9B0C9228A5A70A54003FBB805E5AC2C486D5731D4582992095F3372523821B16E886CC8621E48A5A02D1A0D1991A0A43503656BC6784748782F9AA197C2D5601D80E0017734529ED1520AA50D23BD4CA9EEEFE9BB1FB4125EA311E53C510FA764ADF2EFC9A9B4F71F6981BA98C739DE94D7E3B7CF33A7427F76D62DA3E97B1D47F7C77C03C9E15DC6',X'7801CB616060A8562AC849CCCC53B252A8AED551504A2C2A4AAC2C06F2A2A395928B5253324B9480A2366916402ADA303616482AE597E7A516C563C81A20CB16672416A52269054AC6D602AD030300351020C7');
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    job INTEGER REFERENCES jobs (number) ON DELETE CASCADE,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "events" VALUES(2,1,4.5,'learning-rate','{"learning_rate": 0.1}');
INSERT INTO "events" VALUES(4,NULL,4.5,'capacity','{"capacity": 4}');
INSERT INTO "events" VALUES(5,1,5.0,'ended','{"state": "failed", "reason": "out of memory"}');
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
INSERT INTO "jobs" VALUES(1,'done','mia',0.0,'["night"]','failed','out of memory',0,1.0,3.0,5.0,1,0,0,0,0,0,0,1.0,1.0,1.0,0.5,0.0,0,0);
INSERT INTO "jobs" VALUES(2,'going','',0.0,'[]','running','',0,2.0,3.0,NULL,2,0,10,0,1,6,2,1.0,NULL,0.25,2.0,0.0,4,0);
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('policy','total-quality');
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
INSERT INTO "observations" VALUES(1,0,0,1,4.0,1.0,0.5,1.0,NULL);
INSERT INTO "observations" VALUES(2,0,0,3,4.0,3.0,0.5,1.0,NULL);
INSERT INTO "observations" VALUES(2,1,0,7,4.0,1.0,0.5,1.0,NULL);
INSERT INTO "observations" VALUES(2,1,1,8,5.0,0.25,0.5,1.0,'{"accuracy": 0.5}');
INSERT INTO "observations" VALUES(2,1,2,10,6.0,NULL,0.5,1.0,NULL);
CREATE TABLE requests (
    job INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    submission TEXT NOT NULL
);
INSERT INTO "requests" VALUES(1,'{"id": "done", "arrival": 0.0, "kind": "other", "weight": 2.0, "min_units": 0, "max_units": null, "target_loss": null, "reserved_units": null, "owner": "mia", "deadline": 99.5, "wanted": null}','{"command": ["train", "--fast"], "tags": ["night"]}');
INSERT INTO "requests" VALUES(2,'{"id": "going", "arrival": 0.0, "kind": "ml", "weight": 1.0, "min_units": 0, "max_units": null, "target_loss": null, "reserved_units": null, "owner": "", "deadline": null, "wanted": null}','{"command": ["go"]}');
CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
INSERT INTO "snapshots" VALUES(1,9,21.0,X'007374617465');
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_arrival ON jobs (state, arrival);
CREATE INDEX jobs_by_owner ON jobs (owner);
CREATE INDEX events_by_job ON events (job, seq);
CREATE INDEX decisions_by_epoch ON decisions (epoch, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',2);
COMMIT;
