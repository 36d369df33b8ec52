"""Bare faults: a region four times as large as the limit is written, scanned, and read at random."""

import json
from pathlib import Path

import watch

SOURCE = Path(__file__).with_name("touch.c")


class Touch:
    name = "faults"
    debian = {"cc": "gcc"}
    stores = ("none", "swap", "zram", "disk", "donor", "donors")
    maps_files = False
    megabytes = 512
    # Times the limit, as in `mapwire bench far-fault`.
    times_local = 4
    # There is nothing to be seen in it of a donor's death that the programs do not show.
    kills = False

    def prepare(self, folder, megabytes):
        self.program, self.region = folder / "touch", megabytes
        watch.tool("cc", "-O2", "-Wall", "-Wextra", "-o", self.program, SOURCE)

    def needs(self, megabytes):
        return megabytes << 20

    def run(self, limited):
        said = json.loads(limited.output([self.program, self.region, 20_000]))
        return said.pop("sum"), said
