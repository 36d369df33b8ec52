//! An etcd on loopback in a folder of its own, for tests. Needs etcd (Debian: etcd-server).
#![allow(dead_code, unreachable_pub)] // Each test uses a part.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mapwire_names::{SharedSecret, Store, open};

/// It ends when it is dropped.
pub struct Etcd {
    /// `etcd://…`.
    pub url: String,
    process: Child,
    folder: PathBuf,
}

impl Etcd {
    /// `None`, and says so, where there is none.
    pub fn start() -> Option<Self> {
        let free = || TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let (clients, peers) = (free(), free());
        let (here, there) = (format!("http://{clients}"), format!("http://{peers}"));
        let cluster = format!("default={there}");
        let folder = std::env::temp_dir().join(format!("mapwire-etcd-{}", clients.port()));
        let started = Command::new("etcd")
            .arg("--data-dir")
            .arg(&folder)
            .args(["--listen-client-urls", &here, "--advertise-client-urls", &here])
            .args(["--listen-peer-urls", &there, "--initial-advertise-peer-urls", &there])
            .args(["--initial-cluster", &cluster, "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                mapwire_testing::skip!("etcd cannot be started: {error}");
                return None;
            }
        };
        let url = format!("etcd://{clients}");
        let etcd = Self { url, process, folder };
        let end = Instant::now() + Duration::from_secs(60);
        while etcd.open().count("x").is_err() {
            assert!(Instant::now() < end, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    /// A client of it.
    pub fn open(&self) -> Box<dyn Store> {
        open(&self.url.parse().unwrap(), &SharedSecret::new([0; 32])).unwrap()
    }

    /// How many keys begin with `mapwire/` and `rest`.
    pub fn count(&self, rest: &str) -> u64 {
        self.open().count(&format!("mapwire/{rest}")).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
