-- Layout 2. The owner's appends are numbered, the list says what is runnable, folds may be kept.
ALTER TABLE perdure_sessions ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE perdure_sessions ADD COLUMN batch_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE perdure_sessions ADD COLUMN runnable_at INTEGER;
CREATE INDEX perdure_sessions_runnable ON perdure_sessions (runnable_at) WHERE runnable_at IS NOT NULL;
CREATE TABLE perdure_folds (
    stretch INTEGER NOT NULL,
    view TEXT NOT NULL,
    version INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (stretch, view, upto)
) WITHOUT ROWID;
