"""Redis: a load, then random gets over a socket; as a second case it forks and saves while it is asked."""

import os
import random
import socket
import subprocess
import time

import watch

VALUE = 1000
BLOCK = 1 << 20


class Redis:
    debian = {"redis-server": "redis-server"}
    stores = ("none", "swap", "zram", "disk", "donor", "donors")
    maps_files = False

    def __init__(self, saves=False):
        self.saves = saves
        self.megabytes = 128 if saves else 256
        self.name = "redis bgsave" if saves else "redis"

    def prepare(self, folder, megabytes):
        self.folder, self.keys = folder, megabytes * 1000
        self.gets = self.keys // 20
        # Values begin anywhere in it; half of it is random.
        chunks = random.Random(4)
        self.block = b"".join(chunks.randbytes(64) + b"." * 64 for _ in range(BLOCK // 128))

    def value(self, key, round_=0):
        first = (key * 7919 + round_ * 104_729) % (BLOCK - VALUE)
        return b"%08d" % key + self.block[first : first + VALUE - 8]

    def run(self, limited):
        server, client = self._start(limited)
        figures = {}
        figures["load_seconds"], _ = watch.seconds_of(lambda: self._load(client))
        if self.saves:
            figures["fork_seconds"], said = watch.seconds_of(lambda: client.ask(b"BGSAVE"))
            if b"started" not in said:
                raise watch.Failed(f"BGSAVE: {said.decode()}")
            # The child must not see these.
            client.pipeline(self._set(key, 1) for key in range(0, self.keys, 100))
        figures["get_seconds"], times = watch.seconds_of(lambda: self._get(client))
        times.sort()
        figures["get_p50_us"], figures["get_p99_us"] = (round(times[int(len(times) * share)] * 1e6, 1) for share in (0.5, 0.99))
        if self.saves:
            figures["save_seconds"] = self._saved(client)
        self._check_all(client, 1 if self.saves else 0)
        client.send(b"SHUTDOWN", b"NOSAVE")
        limited.wait(server)
        return "as expected", figures

    def check(self):
        """Has a server without a limit read the file, and compares with what had been there at the fork. Not part of what is timed."""
        if not self.saves:
            return
        server = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self._check_all(Client(self.folder / "socket", server), 0)
        except watch.Failed as error:
            raise watch.Failed(f"the saved file does not hold what the server had at the fork: {error}") from error
        finally:
            server.kill()
            server.wait()
            (self.folder / "dump.rdb").unlink(missing_ok=True)

    def _check_all(self, client, round_):
        """Reads all values, in the order in which they were loaded."""
        client.pipeline(self._ask(key, round_) for key in range(self.keys))

    def _ask(self, key, round_):
        round_ = round_ if key % 100 == 0 else 0
        return command(b"GET", b"key:%d" % key), b"$%d\r\n%s\r\n" % (VALUE, self.value(key, round_))

    def _command(self):
        options = {"port": "0", "unixsocket": self.folder / "socket", "dir": self.folder, "save": "", "appendonly": "no"}
        options |= {"loglevel": "warning", "crash-memcheck-enabled": "no", "rdbcompression": "no"}
        return ["redis-server", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]

    def _start(self, limited):
        (self.folder / "socket").unlink(missing_ok=True)
        (self.folder / "dump.rdb").unlink(missing_ok=True)
        server = limited.start(self._command(), stdout=limited.log)
        return server, Client(self.folder / "socket", server)

    def _set(self, key, round_=0):
        return command(b"SET", b"key:%d" % key, self.value(key, round_)), b"+OK\r\n"

    def _load(self, client):
        client.pipeline(self._set(key) for key in range(self.keys))

    def _get(self, client):
        """How long each get took, one after the other."""
        keys, times = random.Random(5), []
        for _ in range(self.gets):
            asked, expected = self._ask(keys.randrange(self.keys), 1 if self.saves else 0)
            begun = time.perf_counter()
            client.exchange(asked, expected)
            times.append(time.perf_counter() - begun)
        return times

    def _saved(self, client):
        begun = time.monotonic()
        while True:
            said = client.ask(b"INFO", b"persistence")
            if b"rdb_bgsave_in_progress:0" in said:
                if b"rdb_last_bgsave_status:ok" not in said:
                    raise watch.Failed("BGSAVE failed")
                return round(time.monotonic() - begun, 3)
            time.sleep(0.05)


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Client:
    def __init__(self, path, server):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(240)
        while True:
            try:
                self.socket.connect(os.fspath(path))
                break
            except OSError:
                if server.poll() is not None:
                    raise watch.Failed(f"redis-server ended with status {server.returncode} at its start") from None
                time.sleep(0.02)
        while self.ask(b"PING") != b"PONG":
            time.sleep(0.1)

    def send(self, *words):
        self.socket.sendall(command(*words))

    def _read(self, bytes_):
        parts = []
        while bytes_:
            part = self.socket.recv(min(bytes_, 1 << 20))
            if not part:
                raise watch.Failed("redis-server closed the connection")
            parts.append(part)
            bytes_ -= len(part)
        return b"".join(parts)

    def exchange(self, asked, expected):
        """Sends, and fails unless the answer is as expected."""
        self.socket.sendall(asked)
        found = self._read(len(expected))
        if found != expected:
            raise watch.Failed(f"wrong answer: {found[:60]!r}, not {expected[:60]!r}")

    def pipeline(self, exchanges, at_once=64):
        batch = []
        for exchange in exchanges:
            batch.append(exchange)
            if len(batch) == at_once:
                self._flush(batch)
        self._flush(batch)

    def _flush(self, batch):
        if batch:
            self.exchange(b"".join(asked for asked, _ in batch), b"".join(expected for _, expected in batch))
            batch.clear()

    def ask(self, *words):
        """A line or a text."""
        self.send(*words)
        line = b""
        while not line.endswith(b"\r\n"):
            line += self._read(1)
        if line.startswith(b"$"):
            return self._read(int(line[1:]) + 2)[:-2]
        return line[1:-2]
