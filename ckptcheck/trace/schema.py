"""The schema of a trace file: SQLite, one self-contained file a process.

Schema history
  1  first version: header, tensors, steps, texts, records

header   name, value          versions, devices, digest algorithm, command, rank; "ended" is "clean" at a clean end
tensors  id, kind, name, key, optimizer, grp, part, dtype, shape   what a record is of; an item whose dtype or shape
                              changes has several rows; dtype NULL is a plain value
steps    id, step, moment     one row a moment, in the order in which they came
texts    digest, text         long texts by content
records  at (steps.id), what (tensors.id), digest, presence, norm, value     no other index

SQLite has neither booleans nor NaN: a boolean value is a blob of one byte, a NaN norm or tensor value the text
"nan". Text that is no valid Unicode has backslash escapes in its place.
"""

from typing import Final

VERSION: Final = 1
APPLICATION_ID: Final = 0x636B7074
"""Marks the SQLite file as a trace ("ckpt")."""
SUFFIX: Final = ".trace"
MAX_TEXT: Final = 120
"""Longer texts of plain values are cut in a record; their digest covers the whole."""

SCHEMA: Final = """
CREATE TABLE header (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE tensors (id INTEGER PRIMARY KEY, kind TEXT, name TEXT, key TEXT, optimizer INTEGER, grp INTEGER,
                      part INTEGER, dtype TEXT, shape TEXT);
CREATE TABLE steps (id INTEGER PRIMARY KEY, step INTEGER, moment TEXT);
CREATE TABLE texts (digest BLOB PRIMARY KEY, text TEXT) WITHOUT ROWID;
CREATE TABLE records (at INTEGER, what INTEGER, digest BLOB, presence INTEGER, norm REAL, value,
                      PRIMARY KEY (at, what)) WITHOUT ROWID;
"""
