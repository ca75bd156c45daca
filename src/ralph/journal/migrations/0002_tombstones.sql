-- What was forgotten is few among many, and asked for without its ids.
CREATE INDEX ralph_entries_forgotten ON ralph_entries (stream, id) WHERE kind = 'forgotten';
