"""Multiplies two square matrices and prints a digest of the product.

product.py SIZE             matrices that are made in memory
product.py SIZE LEFT RIGHT  matrices in files, mapped privately
"""

import hashlib
import sys

import numpy

size = int(sys.argv[1])
if len(sys.argv) == 4:
    left, right = (numpy.load(path, mmap_mode="c") for path in sys.argv[2:])
else:
    left, right = numpy.empty((size, size)), numpy.empty((size, size))
    random = numpy.random.default_rng(3)
    for matrix in (left, right):
        for first in range(0, size, 256):
            rows = matrix[first : first + 256]
            rows[:] = random.integers(0, 8, rows.shape, numpy.int8)
product = left @ right
print(hashlib.sha256(memoryview(product).cast("B")).hexdigest())
