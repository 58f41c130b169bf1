-- Layout 1. Rows of a stretch lie together, in order, under one integer: stretch * 2^32 + seq.
CREATE TABLE perdure_events (
    id INTEGER PRIMARY KEY,
    data BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    seal BLOB
);
CREATE TABLE perdure_sessions (
    stretch INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    lineage TEXT NOT NULL DEFAULT '[]',
    head INTEGER NOT NULL,
    chain BLOB NOT NULL,
    state TEXT NOT NULL,
    project_key TEXT NOT NULL,
    title TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    folded BLOB NOT NULL
);
-- One index serves every list: filters are answered from the index, rows are fetched for what is shown.
CREATE INDEX perdure_sessions_by_activity ON perdure_sessions (updated_at, id, state, project_key);
CREATE INDEX perdure_sessions_by_title ON perdure_sessions (title);
CREATE TABLE perdure_keys (
    stretch INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (stretch, key)
) WITHOUT ROWID;
CREATE TABLE perdure_blobs (
    num INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    packed INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE perdure_desk (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE perdure_processes (
    id TEXT PRIMARY KEY,
    about TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    lock TEXT NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
