-- Tombstones are few among many entries, and queries look for them without knowing their ids.
CREATE INDEX ralph_entries_forgotten ON ralph_entries (stream, id) WHERE kind = 'forgotten';
