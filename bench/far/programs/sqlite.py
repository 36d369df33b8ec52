"""SQLite, whose page cache holds the whole database."""

import hashlib
import sqlite3

import numpy
import watch

QUERIES = """
PRAGMA cache_size = -{kilobytes};
PRAGMA mmap_size = 0;
SELECT count(*), sum(k), sum(length(body)) FROM t;
SELECT g, count(*), max(body), min(k) FROM t GROUP BY g ORDER BY g;
WITH RECURSIVE r(i, x) AS (SELECT 1, 12345 UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM r WHERE i < {lookups})
SELECT count(*), sum(k), sum(unicode(substr(body, 1 + x % 200))) FROM r JOIN t ON t.id = 1 + (x / 8) % {rows};
SELECT count(*), max(body) FROM t WHERE k % 3 = 1;
"""


class Sqlite:
    name = "sqlite"
    debian = {"sqlite3": "sqlite3"}
    stores = ("none", "swap", "zram", "disk", "donor", "donors")
    maps_files = False
    megabytes = 256

    def prepare(self, folder, megabytes):
        """A table of rows of 450 bytes."""
        self.path = folder / "database"
        self.rows = megabytes * 2300
        self.queries = QUERIES.format(kilobytes=megabytes * 1200, lookups=self.rows // 16, rows=self.rows)
        random = numpy.random.default_rng(2)
        base = sqlite3.connect(self.path)
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, g INTEGER, k INTEGER, body TEXT)")
        for first in range(0, self.rows, 20_000):
            count = min(20_000, self.rows - first)
            letters = random.integers(97, 123, (count, 200), numpy.uint8).tobytes().decode()
            keys = random.integers(0, 1 << 40, count).tolist()
            rows = ((key % 50, key, letters[200 * row : 200 * row + 200] + "x" * 225) for row, key in enumerate(keys))
            base.executemany("INSERT INTO t (g, k, body) VALUES (?, ?, ?)", rows)
        base.commit()
        base.close()

    def run(self, limited):
        watch.cached(self.path)
        text = limited.output(["sqlite3", "-batch", "-readonly", self.path, self.queries])
        return hashlib.sha256(text).hexdigest(), {}
