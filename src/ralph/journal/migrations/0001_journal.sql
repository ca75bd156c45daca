-- One row per stream. It hands out the positions and stays locked until the writer commits.
CREATE TABLE ralph_streams (
    stream bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    memory text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    epoch uuid NOT NULL DEFAULT gen_random_uuid(),
    head bigint NOT NULL DEFAULT 0,
    removed bigint NOT NULL DEFAULT 0,
    last_number bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (memory, name)
) WITH (fillfactor = 50);

-- One row per entry: a record, or the tombstone of a forgotten record (no digest, no body).
-- The collation "C" keeps the indexes valid when the system's locales change.
CREATE TABLE ralph_entries (
    stream bigint NOT NULL REFERENCES ralph_streams,
    position bigint NOT NULL,
    v smallint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at text COLLATE "C" NOT NULL,
    digest text COLLATE "C",
    source text NOT NULL DEFAULT '{}',
    body text,
    reason text,
    was_at text COLLATE "C",
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream, position)
);

CREATE INDEX ralph_entries_by_id ON ralph_entries (stream, id);
CREATE INDEX ralph_entries_by_digest ON ralph_entries (stream, digest) WHERE digest IS NOT NULL;
CREATE INDEX ralph_entries_by_was_at ON ralph_entries (stream, was_at) WHERE was_at IS NOT NULL;
