-- Layout 2. The owner's appends are numbered, the list says what is runnable, folds may be kept.
ALTER TABLE perdure_sessions ADD COLUMN batch bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_sessions ADD COLUMN batch_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_sessions ADD COLUMN runnable_at bigint;
CREATE INDEX perdure_sessions_runnable ON perdure_sessions (runnable_at, id) WHERE runnable_at IS NOT NULL;
CREATE TABLE perdure_folds (
    stretch bigint NOT NULL,
    view text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    upto bigint NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (stretch, view, upto)
);
