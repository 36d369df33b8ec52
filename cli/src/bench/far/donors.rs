//! Donors of a bench: `mapwire serve --donate` on this host, which poll.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mapwire::global::{DirectoryPlacement, DonorStore, Lenders};
use mapwire_host::paging::DiskStore;

use crate::bench::BenchError;

/// Memory of each donor.
const SIZE: &str = "1G";

/// As many donors as there are copies of a page. They end when this is dropped.
pub(super) struct Donors {
    processes: Vec<Child>,
    lenders: Lenders,
    folder: PathBuf,
}

impl Donors {
    pub(super) fn start(copies: u8) -> Result<Self, BenchError> {
        let folder = std::env::temp_dir().join(format!("mapwire-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut donors = Self {
            processes: Vec::new(),
            lenders: Lenders {
                store: "mapwire://127.0.0.1".parse()?,
                secret_file: folder.join("secret"),
                copies,
                directory: DirectoryPlacement::default(),
            },
            folder,
        };
        let place = ["--listen", "127.0.0.1:0"].map(str::to_owned);
        let store = donors.start_one(&place)?;
        donors.lenders.store = store.parse()?;
        for _ in 1..copies {
            donors.start_one(&["--names".to_owned(), store.clone()])?;
        }
        Ok(donors)
    }

    /// Starts a donor; where it is found.
    fn start_one(&mut self, place: &[String]) -> Result<String, BenchError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--json", "--donate", SIZE, "--secret-file"])
            .arg(&self.lenders.secret_file)
            .args(place)
            .env("MAPWIRE_WAIT", "poll")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = process.stdout.take();
        self.processes.push(process);
        let lines = stdout
            .map(BufReader::new)
            .into_iter()
            .flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if said["event"] == "donating" {
                return Ok(said["names"].as_str().unwrap_or_default().to_owned());
            }
        }
        Err("a donor did not begin: is there 1 GiB of memory for each?".into())
    }

    /// A store that has its pages at them.
    pub(super) fn store(&self) -> Result<DonorStore, BenchError> {
        let disk = DiskStore::new(std::env::temp_dir())?;
        let report = |text: &str| eprintln!("mapwire: {text}");
        Ok(DonorStore::new(disk, self.lenders.clone(), report)?)
    }
}

impl Drop for Donors {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
