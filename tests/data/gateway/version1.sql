-- The database of a gateway of version 1, with one session. FOLDER stands for its working directory.
BEGIN TRANSACTION;
CREATE TABLE prompts (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    uuid TEXT NOT NULL,
    line BLOB,
    PRIMARY KEY (session, uuid)
);
INSERT INTO "prompts" VALUES('7f3dc510-55d6-46fa-8736-a5c930a84a6d','f395c76d-913d-432e-bf74-2a62ebc8d60c',NULL);
CREATE TABLE questions (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    request_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    line BLOB NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL,
    delegate TEXT,
    state TEXT NOT NULL DEFAULT 'open',
    decided_by TEXT,
    decided_at REAL,
    answer BLOB,
    PRIMARY KEY (session, request_id)
);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    creator TEXT NOT NULL,
    cwd TEXT NOT NULL,
    options TEXT NOT NULL,
    engine_id TEXT NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    used_at REAL NOT NULL,
    is_loaded INTEGER NOT NULL DEFAULT 0,
    initialize BLOB,
    callbacks_of TEXT,
    tokens_used INTEGER NOT NULL DEFAULT 0,
    usd_used REAL NOT NULL DEFAULT 0
);
INSERT INTO "sessions" VALUES('7f3dc510-55d6-46fa-8736-a5c930a84a6d','','admin','FOLDER',X'5B5D','7f3dc510-55d6-46fa-8736-a5c930a84a6d','Old session',1.79490464241185379025e+09,1.79490464242268228526e+09,0,NULL,NULL,39,0.0);
CREATE TABLE spending (
    name TEXT PRIMARY KEY,
    tokens INTEGER NOT NULL,
    usd REAL NOT NULL
);
INSERT INTO "spending" VALUES('admin',39,0.0);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    grants TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
);
CREATE INDEX open_prompts ON prompts (session) WHERE line IS NOT NULL;
CREATE INDEX open_questions ON questions (asked_at) WHERE state = 'open';
COMMIT;
PRAGMA user_version=1;
