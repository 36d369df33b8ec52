//! `mapwire run --capture`: the ranks write the datagrams between them; when the job is over, their files become one in order of time,
//! which Wireshark opens.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use mapwire_console::whole_file::{Destination, WholeFile};
use mapwire_transport::net::capture::{MAX_FILE_BYTES, Merged, Source, file_of, merge};

use super::hosts::clock_of;

pub(super) struct Capture {
    target: Destination,
    ranks: u32,
}

impl Capture {
    /// A capture that becomes the file `target`.
    pub(super) fn new(target: Destination, ranks: u32) -> Self {
        Self { target, ranks }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.target.path()
    }

    /// Makes one capture of the ranks' files in `folder`, when no rank writes any more; says on standard error what came of it. False
    /// when there is no capture.
    pub(super) fn finish(self, folder: &Path) -> bool {
        let path = self.path();
        match self.write(folder) {
            Ok((merged, bytes)) => {
                for rank in merged.torn {
                    eprintln!("mapwire: capture: rank {rank} was killed: what it wrote last is missing");
                }
                for rank in merged.full {
                    let mib = MAX_FILE_BYTES >> 20;
                    eprintln!(
                        "mapwire: capture: rank {rank} has written {mib} MiB, which is the most: what came later is missing"
                    );
                }
                eprintln!(
                    "mapwire: capture of {} datagrams in {}, {bytes} bytes; it holds data of the job",
                    merged.datagrams,
                    path.display()
                );
                true
            }
            Err(why) => {
                eprintln!("mapwire: no capture was written to {}: {why}", path.display());
                false
            }
        }
    }

    fn write(self, folder: &Path) -> Result<(Merged, u64), String> {
        let mut sources = Vec::new();
        for rank in 0..self.ranks {
            let path = file_of(folder, rank);
            if path.exists() {
                let source = Source::open(&path, rank, clock_of(folder, rank));
                sources.push(source.map_err(|error| format!("{}: {error}", path.display()))?);
            }
        }
        if sources.is_empty() {
            return Err("no rank joined the job, so none sent a datagram".to_owned());
        }
        let write = || {
            let file = WholeFile::create_at(self.target)?;
            // It holds keys and data of the job.
            file.make_private()?;
            let mut file = BufWriter::new(file);
            let merged = merge(sources, &mut file)?;
            file.flush()?;
            let file = file.into_inner().map_err(|error| error.into_error())?;
            Ok((merged, file.keep()?))
        };
        write().map_err(|error: std::io::Error| error.to_string())
    }
}
