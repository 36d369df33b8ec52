"""What the kernel offers: a group of processes with a limit on its memory (cgroup v1 or v2), and swap space in a file or in zram."""

import os
import signal
import subprocess
import time
from pathlib import Path

import watch


class Unavailable(Exception):
    """This computer lacks what a store needs."""


def _write(path, text):
    Path(path).write_text(str(text))


def _hierarchy():
    """The folder in which groups are made, and whether it is of version 2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(folder), False
        controllers = Path(folder) / "cgroup.controllers"
        if kind == "cgroup2" and "memory" in controllers.read_text().split():
            return Path(folder), True
    raise Unavailable("no cgroup hierarchy here has the memory controller: is it mounted, and this container allowed to use it?")


class Group:
    """A cgroup of its own, in which a program runs. Its processes are killed, and the group removed, at the end."""

    def __init__(self, limit_bytes=None):
        self.limit_bytes = limit_bytes

    def __enter__(self):
        root, self.is_v2 = _hierarchy()
        if self.is_v2:
            control = root / "cgroup.subtree_control"
            if "memory" not in control.read_text().split():
                _write(control, "+memory")
        self.folder = root / f"mapwire-bench-far-{os.getpid()}"
        self.folder.mkdir()
        try:
            if self.limit_bytes:
                _write(self.folder / ("memory.max" if self.is_v2 else "memory.limit_in_bytes"), self.limit_bytes)
        except BaseException:
            self.folder.rmdir()
            raise
        return self

    def join(self):
        """Moves the calling process into the group."""
        _write(self.folder / "cgroup.procs", os.getpid())

    def processes(self):
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]

    def peak_bytes(self):
        """The most that the group had, files in the page cache included; `None` where the kernel does not say (v2 before Linux 5.19)."""
        peak = self.folder / ("memory.peak" if self.is_v2 else "memory.max_usage_in_bytes")
        return int(peak.read_text()) if peak.exists() else None

    def killed(self):
        """How many processes the kernel has killed because it could not bring the group below its limit."""
        text = (self.folder / ("memory.events" if self.is_v2 else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines()).get("oom_kill", 0))

    def __exit__(self, *_):
        for _ in range(100):
            for process in self.processes():
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.1)
        watch.say(f"{self.folder} cannot be removed: something still runs in it")


class SwapFile:
    """Swap space in a file, before all other swap space."""

    name = "swap file"

    def __init__(self, folder, size):
        self.path, self.size = Path(folder) / "swap", size

    def __enter__(self):
        try:
            with open(self.path, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                os.posix_fallocate(file.fileno(), 0, self.size)
            _swap_on(self.path)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise
        return self

    def used_bytes(self):
        return None

    def __exit__(self, *_):
        _swap_off(self.path)
        self.path.unlink(missing_ok=True)


class Zram:
    """Swap space in a compressed RAM disk, which the limit does not count."""

    name = "zram"

    def __init__(self, _folder, size):
        self.size = size

    def __enter__(self):
        control = Path("/sys/class/zram-control")
        if not control.exists():
            subprocess.run(["modprobe", "zram"], check=False, stderr=subprocess.DEVNULL)
        if not control.exists():
            raise Unavailable("this kernel has no zram: load its module, or build it in")
        self.number = int((control / "hot_add").read_text())
        self.settings, self.device = Path(f"/sys/block/zram{self.number}"), Path(f"/dev/zram{self.number}")
        try:
            _write(self.settings / "disksize", self.size)
            _swap_on(self.device)
        except BaseException:
            self._remove()
            raise
        return self

    def used_bytes(self):
        """The most memory that it took."""
        return int((self.settings / "mm_stat").read_text().split()[4])

    def __exit__(self, *_):
        _swap_off(self.device)
        self._remove()

    def _remove(self):
        for _ in range(50):
            try:
                _write(self.settings / "reset", 1)
                _write("/sys/class/zram-control/hot_remove", self.number)
                return
            except OSError:
                time.sleep(0.1)
        watch.say(f"{self.device} cannot be removed: it is in use")


def _swap_on(path):
    watch.tool("mkswap", path)
    watch.tool("swapon", "--priority", "32767", path)


def _swap_off(path):
    try:
        watch.tool("swapoff", path)
    except watch.Failed as error:
        watch.say(str(error))
