"""Runs programs and looks at their memory meanwhile."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path


class Failed(Exception):
    """A program or a check failed; the text says which and why."""


def say(text):
    print(f"far: {text}", file=sys.stderr, flush=True)


def tool(*command):
    """Runs a tool of the system."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Memory(threading.Thread):
    """Samples the memory of the largest process of a group, every 50 ms, and keeps the most: a forked child shares that of its parent."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.stopped = group, threading.Event()
        self.anonymous_bytes = self.resident_bytes = 0

    def run(self):
        while not self.stopped.wait(0.05):
            for process in self.group.processes():
                try:
                    text = Path(f"/proc/{process}/status").read_text()
                except OSError:
                    continue
                sizes = {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)}
                self.anonymous_bytes = max(self.anonymous_bytes, sizes.get("RssAnon", 0))
                self.resident_bytes = max(self.resident_bytes, sizes.get("VmHWM", 0))

    def stop(self):
        self.stopped.set()
        self.join()


class Limited:
    """Starts programs of one combination of program and store: in its group, under its command, killed when the time is over."""

    def __init__(self, group, prefix, seconds, log):
        self.group, self.prefix, self.log = group, [str(word) for word in prefix], log
        self.processes, self.is_late = [], False
        self.timer = threading.Timer(seconds, self._end)
        self.seconds = seconds

    def __enter__(self):
        self.timer.start()
        return self

    def start(self, command, **options):
        """A process with its standard error in the log."""
        command = self.prefix + [str(word) for word in command]
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(command, stderr=self.log, preexec_fn=self.group.join, start_new_session=True, **options)
        self.processes.append(process)
        return process

    def output(self, command, feed=None, **options):
        """What a program prints: fed in parts to `feed`, or returned."""
        process = self.start(command, stdout=subprocess.PIPE, **options)
        parts = []
        while part := process.stdout.read1(1 << 20):
            (feed or parts.append)(part)
        process.stdout.close()
        self.wait(process)
        return b"".join(parts)

    def wait(self, process):
        status = process.wait()
        if status:
            raise Failed(f"it ended with status {status}: {self.last_line()}")

    def last_line(self):
        lines = Path(self.log.name).read_text(errors="replace").strip().splitlines()
        said = [line for line in lines if not line.startswith("  ")]
        return said[-1] if said else "no message"

    def _end(self):
        self.is_late = True
        for process in self.processes:
            if process.poll() is None:
                process.kill()

    def __exit__(self, *_):
        self.timer.cancel()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def figures(text):
    """What `mapwire far --stats` printed, as numbers; of the process that stored most if there are several."""
    pattern = {
        "far_resident_mib": r"MiB in RAM \(([\d.]+) at its peak\)",
        "far_disk_mib": r"of at most [\d.]+, ([\d.]+) MiB on disk",
        "far_remote_mib": r"on disk, ([\d.]+) MiB remote",
        "far_faults_new": r"faults +(\d+) of new pages",
        "far_faults_hit": r"of new pages, (\d+) found in RAM",
        "far_faults_fetched": r"found in RAM, (\d+) fetched",
        "far_fault_p50": r"latency +p50 ([^,]+),",
        "far_fault_p99": r"p99 ([^,]+),",
        "far_fault_max": r"max (\S+)",
        "far_fetched": r"pages in +(\d+) fetched",
        "far_of_files": r"(\d+) of files",
        "far_ahead_used": r"ahead of a fault: (\d+) used",
        "far_ahead_not_used": r"used, (\d+) left unused",
        "far_stored": r"pages out +(\d+) stored",
        "far_unchanged": r"stored, (\d+) unchanged",
        "far_put": r"donors +(\d+) pages put",
        "far_got": r"pages put, (\d+) got",
        "far_missed": r"got, (\d+) missed",
        "far_not_stored": r"trouble +(\d+) times",
        "far_lost": r"not stored, (\d+) pages lost",
    }
    best = {}
    for part in re.split(r"^mapwire far: .*, process \d+$", text, flags=re.M)[1:]:
        found = {name: match[1] for name, rule in pattern.items() if (match := re.search(rule, part))}
        found = {name: _number(value) for name, value in found.items()}
        if found.get("far_stored", 0) >= best.get("far_stored", 0):
            best = found
    return best


def _number(text):
    """A count, or a duration in microseconds."""
    match = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)?", text)
    if not match:
        return text
    value = float(match[1])
    if match[2]:
        return round(value * {"ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6}[match[2]], 3)
    return int(value) if value.is_integer() else value


def cached(path):
    """Has the page cache hold a file, at nobody's expense."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 22):
            pass


def not_cached(path):
    """Has the page cache hold nothing of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_of(call):
    begun = time.monotonic()
    result = call()
    return round(time.monotonic() - begun, 3), result
