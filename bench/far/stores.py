"""Where the memory of a program may be that is beyond its limit."""

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import limits
import watch

# Name on the command line: how the rows call it.
NAMES = {
    "none": "no limit",
    "swap": "swap file",
    "zram": "zram",
    "disk": "far, disk",
    "donor": "far, one donor",
    "donors": "far, two donors",
}


class Store:
    """One of them, set up for one run: `group` is where the program runs, `prefix` what its command begins with."""

    def __init__(self, name, settings, local_bytes, peak_bytes, files=False, kill=None):
        self.name, self.settings, self.kill = name, settings, kill
        self.local_bytes, self.peak_bytes = local_bytes, peak_bytes
        self.files = files
        self.donors = self.swap = None
        self.prefix = []

    def __enter__(self):
        with ExitStack() as stack:
            is_swap = self.name in ("swap", "zram")
            if is_swap:
                kind = limits.SwapFile if self.name == "swap" else limits.Zram
                self.swap = stack.enter_context(kind(self.settings.folder, 2 * self.peak_bytes))
            self.group = stack.enter_context(limits.Group(self.local_bytes if is_swap else None))
            if self.name in ("disk", "donor", "donors"):
                self.prefix = [self.settings.mapwire, "far", "--stats", "--local", self.local_bytes, "--disk", self.settings.folder]
                if self.files:
                    self.prefix.append("--files")
            if self.name in ("donor", "donors"):
                copies = 2 if self.name == "donors" else 1
                self.donors = stack.enter_context(Donors(self.settings, copies, 2 * self.peak_bytes))
                self.prefix += self.donors.options()
            if self.prefix:
                self.prefix.append("--")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *arguments):
        self.stack.close()

    def used(self):
        """What the store counted."""
        swapped = self.swap.used_bytes() if self.swap else None
        return {} if swapped is None else {"zram_bytes": swapped}


class Donors:
    """Donors on this host, and the server of names by which they are found."""

    def __init__(self, settings, count, lent_bytes):
        self.mapwire, self.count, self.bytes = settings.mapwire, count, lent_bytes
        self.secret = Path(settings.folder) / "secret"
        self.copies = count
        self.processes = []

    def __enter__(self):
        try:
            descriptor = os.open(self.secret, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            server = self._start("listening", "--listen", "127.0.0.1:0")
            self.store = self.names
            self.processes = [server]
            for _ in range(self.count):
                self.add()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, event, *options):
        command = [self.mapwire, "serve", "--json", "--secret-file", self.secret, *options]
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, text=True)
        self.processes.append(process)
        for line in process.stdout:
            said = json.loads(line)
            self.names = said.get("names") or said.get("address")
            if said["event"] == event:
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return process
        raise watch.Failed(f"a donor did not begin: {' '.join(map(str, command))}")

    def add(self):
        """Starts one more."""
        self._start("donating", "--names", self.store, "--donate", str(self.bytes))

    def options(self):
        return [f"--donors={self.store}", "--secret-file", self.secret, "--copies", self.copies]

    def kill(self, number):
        """Kills a donor, counted from 0, and the processes by which it lends; as when its host goes."""
        donor = self.processes[1 + number]
        for process in _children(donor.pid) + [donor.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        donor.wait()

    def __exit__(self, *_):
        for process in reversed(self.processes):
            for each in _children(process.pid) if process.poll() is None else []:
                try:
                    os.kill(each, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.kill()
            process.wait()
        self.processes = []
        self.secret.unlink(missing_ok=True)


def _children(process):
    """Those that a process has started."""
    found = []
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(word) for word in tasks.read_text().split()]
        except OSError:
            pass
    return found


class Death(threading.Thread):
    """Kills one donor, once so many seconds are over and it has pages, and has another one join a second later."""

    def __init__(self, store, number, seconds):
        super().__init__(daemon=True)
        self.store, self.number, self.seconds = store, number, seconds
        self.ended, self.done, self.error = threading.Event(), False, None

    def run(self):
        try:
            begun = time.monotonic()
            while not self._is_lent() or time.monotonic() - begun < self.seconds:
                if self.ended.wait(0.1):
                    return
            self.store.donors.kill(self.number)
            self.done = True
            if not self.ended.wait(1):
                self.store.donors.add()
        except Exception as error:  # The thread that measures says so.
            self.error = error

    def _is_lent(self):
        """Whether a process of the group has pages at donors."""
        for process in self.store.group.processes():
            command = [self.store.settings.mapwire, "stats", str(process), "--json"]
            asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
            if any(json.loads(line)["remote_bytes"] for line in asked.stdout.splitlines()):
                return True
        return False

    def end(self):
        self.ended.set()
        self.join()
