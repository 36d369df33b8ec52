"""A product of two matrices by NumPy, which are in memory or in files that are mapped."""

import math
import sys
from pathlib import Path

import numpy
import watch

# Part of what the program is given: its own folder is not where it runs.
PROGRAM = Path(__file__).with_name("product.py")


class Product:
    debian = {}

    def __init__(self, of_files=False):
        self.of_files = self.maps_files = of_files
        self.name = "numpy files" if of_files else "numpy"
        self.stores = ("none", "swap", "zram", "disk") if of_files else ("none", "swap", "zram", "disk", "donor", "donors")
        self.megabytes = 384

    def prepare(self, folder, megabytes):
        """Three matrices of so many megabytes in all. Their entries are small whole numbers, so that any order of sums gives the same."""
        self.size = math.isqrt(megabytes * (1 << 20) // 24)
        self.paths = []
        if self.of_files:
            random = numpy.random.default_rng(3)
            for name in ("left.npy", "right.npy"):
                self.paths.append(folder / name)
                numpy.save(self.paths[-1], random.integers(0, 8, (self.size, self.size), numpy.int8).astype(numpy.float64))

    def run(self, limited):
        for path in self.paths:
            # Its pages are to count as the program's.
            watch.not_cached(path)
        return limited.output([sys.executable, PROGRAM, self.size, *self.paths]).decode().strip(), {}
