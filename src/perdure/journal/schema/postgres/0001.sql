-- Layout 1. Text compares by bytes, whatever the database's locale: ids, prefixes and equal times sort the same everywhere.
CREATE SEQUENCE perdure_stretches;
-- Rows of 4 kB and more come compressed, and the server notices that at once. Those from 2 kB on it compresses itself:
-- that saves a quarter of the table and costs 0.05 ms. All stay in the row as long as a page holds them, for in a
-- table beside it they take longer to write and half as much space again.
CREATE TABLE perdure_events (
    stretch bigint NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    checksum bigint NOT NULL,
    seal bytea,
    PRIMARY KEY (stretch, seq)
);
ALTER TABLE perdure_events ALTER COLUMN data SET STORAGE MAIN;
-- Half of every page is left free, so that the next version of a row fits beside it and its indexes need no change.
CREATE TABLE perdure_sessions (
    stretch bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    lineage bigint[] NOT NULL DEFAULT '{}',
    lineage_upto bigint[] NOT NULL DEFAULT '{}',
    head bigint NOT NULL,
    chain bytea NOT NULL,
    state text COLLATE "C" NOT NULL,
    project_key text COLLATE "C" NOT NULL,
    title text COLLATE "C" NOT NULL,
    updated_at bigint NOT NULL,
    folded bytea NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX perdure_sessions_by_activity ON perdure_sessions (updated_at, id, state);
-- By hash, for the rows of an ordered index may not be longer than a third of a page and a title may.
CREATE INDEX perdure_sessions_by_title ON perdure_sessions USING hash (title);
CREATE TABLE perdure_keys (
    stretch bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (stretch, key)
);
CREATE TABLE perdure_blobs (
    hash bytea PRIMARY KEY,
    size bigint NOT NULL,
    packed boolean NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE perdure_blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE perdure_desk (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE perdure_processes (
    id text COLLATE "C" PRIMARY KEY,
    about text NOT NULL,
    host text NOT NULL,
    boot text NOT NULL,
    lock text NOT NULL,
    expires timestamptz NOT NULL
);
