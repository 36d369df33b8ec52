"""GNU sort, which holds all lines in memory."""

import hashlib
import os

import numpy
import watch

LINE = 100


class Sort:
    name = "sort"
    debian = {"sort": "coreutils"}
    stores = ("none", "swap", "zram", "disk", "donor", "donors")
    maps_files = False
    megabytes = 96

    def prepare(self, folder, megabytes):
        """Lines of 100 bytes: 32 random letters, and one of 64 texts."""
        self.path = folder / "lines"
        random = numpy.random.default_rng(1)
        texts = numpy.tile(random.integers(97, 123, (64, 17), numpy.uint8), 4)[:, : LINE - 33]
        self.lines = megabytes * (1 << 20) // LINE
        with open(self.path, "wb") as file:
            for first in range(0, self.lines, 1 << 18):
                count = min(1 << 18, self.lines - first)
                lines = numpy.empty((count, LINE), numpy.uint8)
                lines[:, :32] = random.integers(97, 123, (count, 32), numpy.uint8)
                lines[:, 32:-1] = texts[random.integers(0, 64, count)]
                lines[:, -1] = 10
                lines.tofile(file)

    def run(self, limited):
        watch.cached(self.path)
        digest = hashlib.sha256()
        command = ["sort", "--parallel=2", "-S", f"{self.lines * (LINE + 64) // 1024 + 65536}K", self.path]
        limited.output(command, digest.update, env=os.environ | {"LC_ALL": "C"})
        return digest.hexdigest(), {}
