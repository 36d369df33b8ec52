"""Runs each program under each store, and writes a JSON row for each run. `run.sh` starts it.

A row has: program, store, killed (which donor died meanwhile; "" for none), size_mib, local_bytes, seconds, ratio (to no limit),
identical, attempts (more than 1 where the kernel killed the program), peak_anonymous_bytes and peak_resident_bytes of the processes, peak_group_bytes (files in the page cache included), figures of
the program, and far_… of `mapwire far --stats`. A run that failed has `error` in place of seconds; what it printed lies beside the rows.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import limits
import programs
import stores
import watch

# What must stay free.
LEAST_DISK = LEAST_RAM = 4 << 30
PAGE = 4096
# Small groups with swap space are killed at times.
ATTEMPTS = 5


class KilledByKernel(watch.Failed):
    """For want of memory."""


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mapwire", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--stores", default="")
    parser.add_argument("--kills", choices=("each", "no"), default="each")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--minutes", type=float, default=18)
    given = parser.parse_args()
    given.only = given.only.split(",") if given.only else list(programs.ALL)
    given.stores = given.stores.split(",") if given.stores else list(stores.NAMES)
    for name, known in ((given.only, programs.ALL), (given.stores, stores.NAMES)):
        if wrong := set(name) - set(known):
            parser.error(f"{', '.join(sorted(wrong))}: not one of {', '.join(known)}")
    given.sizes = {}
    for name in given.only:
        variable = name.upper().replace(" ", "_") + "_MB"
        size = os.environ.get(variable, str(programs.ALL[name].megabytes))
        if not size.isascii() or not size.isdigit() or int(size) == 0:
            parser.error(f"{variable}={size}: not a number of megabytes")
        # Less would be lost in what each program needs besides.
        given.sizes[name] = max(int(size) // 16, 8) if given.quick else int(size)
    return given


def missing_packages(names):
    wanted = {"swapon": "util-linux", "mkswap": "util-linux"}
    for name in names:
        wanted |= programs.ALL[name].debian
    return sorted({package for program, package in wanted.items() if not shutil.which(program)})


def machine():
    """What the figures are of, in a few words."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return f"{os.cpu_count()} processors {model}, {memory_bytes('MemTotal') >> 30} GiB, Linux {platform.release()}"


def memory_bytes(name):
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


class Comparison:
    """All runs of a program. Those that would begin after `ends` are left out."""

    def __init__(self, given, folder, ends):
        self.given, self.folder, self.machine = given, folder, machine()
        self.mapwire, self.ends = given.mapwire, ends

    def of(self, program):
        """No limit first, which tells what the others are compared with."""
        size = self.given.sizes[program.name]
        program.prepare(self.folder, size)
        base = self.run(program, "none", size, None)
        if "error" in base:
            return
        # With no limit the peak is what the program needs.
        self.peak = program.needs(size) if hasattr(program, "needs") else base["peak_anonymous_bytes"]
        if program.maps_files:
            self.peak = base["peak_resident_bytes"]
        local = max(self.peak // getattr(program, "times_local", 2) // PAGE * PAGE, 4 << 20)
        for store in program.stores[1:]:
            if store not in self.given.stores:
                continue
            row = self.run(program, store, size, base, local)
            if store in ("donor", "donors") and self.given.kills == "each" and getattr(program, "kills", True):
                # Not quite half way, as far as one can tell.
                after = row.get("seconds", 2 * base["seconds"]) * 0.4
                for number in range(2 if store == "donors" else 1):
                    self.run(program, store, size, base, local, (number, after))

    def run(self, program, store, size, base, local=None, kill=None):
        killed = f"donor {kill[0] + 1}" if kill else ""
        row = {"bench": "far-programs", "program": program.name, "store": stores.NAMES[store], "killed": killed, "size_mib": size}
        row["local_bytes"] = local or 0
        try:
            for attempt in range(1, ATTEMPTS + 1):
                row["attempts"] = attempt
                try:
                    self.measure(program, store, base, local, kill, row)
                    break
                except KilledByKernel:
                    if attempt == ATTEMPTS:
                        raise
        except limits.Unavailable as error:
            row["error"] = f"left out: {error}"
        except Exception as error:
            row["error"] = str(error) or type(error).__name__
            self.keep_log(f"{program.name} {store} {killed}")
            if not isinstance(error, (watch.Failed, OSError)):
                traceback.print_exc()
        row["machine"] = self.machine
        with open(self.given.rows, "a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        said = row.get("error") or f"{row['seconds']:.1f} s, {row['ratio']:.2f}" + ("" if row["identical"] else ", THE RESULT IS ANOTHER ONE")
        watch.say(f"{program.name}, {row['store']}{', killed ' + killed if killed else ''}: {said}")
        return row

    def keep_log(self, name):
        """What a run that failed has printed lies beside the rows."""
        place = Path(self.given.rows).with_name("failed-" + re.sub("[^a-z0-9]+", "-", name.strip()) + ".log")
        try:
            shutil.copy(self.folder / "log", place)
        except OSError as error:
            watch.say(f"{place} cannot be written: {error}")

    def measure(self, program, store, base, local, kill, row):
        if shutil.disk_usage(self.folder).free < LEAST_DISK or memory_bytes("MemAvailable") < LEAST_RAM:
            raise watch.Failed(f"less than {LEAST_DISK >> 30} GiB of disk or memory are free")
        if base and time.monotonic() > self.ends:
            raise limits.Unavailable("--minutes are over")
        files = program.maps_files
        log_path = self.folder / "log"
        with (
            stores.Store(store, self, local, getattr(self, "peak", 0), files) as place,
            open(log_path, "w+b") as log,
        ):
            memory = watch.Memory(place.group)
            memory.start()
            death = stores.Death(place, *kill) if kill else None
            try:
                with watch.Limited(place.group, place.prefix, self.given.seconds, log) as limited:
                    if death:
                        death.start()
                    begun = time.monotonic()
                    try:
                        result, figures = program.run(limited)
                    except Exception as error:
                        if limited.is_late:
                            raise watch.Failed(f"took longer than {self.given.seconds:.0f} s") from error
                        if place.group.killed():
                            raise KilledByKernel(f"the kernel killed it {ATTEMPTS} times: it could not bring its memory below the limit") from error
                        raise
                    seconds = time.monotonic() - begun
            finally:
                memory.stop()
                if death:
                    death.end()
            if death and not death.done:
                raise watch.Failed(f"the donor was not killed in time: {death.error or 'the program had ended'}")
            row |= {"seconds": round(seconds, 3), "ratio": round(seconds / base["seconds"], 3) if base else 1.0}
            row["identical"] = not base or result == self.result
            row["peak_anonymous_bytes"], row["peak_resident_bytes"] = memory.anonymous_bytes, memory.resident_bytes
            row["peak_group_bytes"] = place.group.peak_bytes()
            row |= place.used()
            if hasattr(program, "check"):
                program.check()
            row |= figures | watch.figures(log_path.read_text(errors="replace"))
            if place.prefix and "far_stored" not in row:
                raise watch.Failed("the program printed no figures of far memory")
        if not base:
            self.result = result


def stop(number, _frame):
    # Once is enough: what follows must not be interrupted.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    given = arguments()
    if os.geteuid() != 0:
        print("far: cgroups and swap space are root's: run it as root", file=sys.stderr)
        sys.exit(2)
    if missing := missing_packages(given.only):
        print(f"far: missing: apt-get install {' '.join(missing)}", file=sys.stderr)
        sys.exit(2)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    ends = time.monotonic() + given.minutes * 60
    for number, name in enumerate(given.only):
        # Those that are left share the time that is left.
        now = time.monotonic()
        share = now + (ends - now) / (len(given.only) - number)
        # A folder for each, so that its input is gone before the next one's is made.
        with tempfile.TemporaryDirectory(prefix="mapwire-bench-far-", dir=given.folder, ignore_cleanup_errors=True) as folder:
            try:
                Comparison(given, Path(folder), share).of(programs.ALL[name])
            except (watch.Failed, OSError) as error:
                watch.say(f"{name}: {error}")


if __name__ == "__main__":
    main()
