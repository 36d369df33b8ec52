//! `mapwire run --capture`: the ranks write the datagrams between them; when the job is over, their files become one in order of time,
//! which Wireshark opens.

use std::io::{BufWriter, Write};
use std::path::Path;

use mapwire_console::whole_file::{Destination, WholeFile};
use mapwire_transport::net::capture::{MAX_FILE_BYTES, Source, file_of, merge};

use super::hosts::clock_of;

/// Makes one capture of the ranks' files in `folder`, when no rank writes any more. Gives what there is to say of it.
pub(super) fn write(target: Destination, ranks: u32, folder: &Path) -> Result<Vec<String>, String> {
    let path = target.path();
    let mut sources = Vec::new();
    for rank in 0..ranks {
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
        let file = WholeFile::create_at(target)?;
        // It holds keys and data of the job.
        file.make_private()?;
        let mut file = BufWriter::new(file);
        let merged = merge(sources, &mut file)?;
        file.flush()?;
        let file = file.into_inner().map_err(|error| error.into_error())?;
        Ok((merged, file.keep()?))
    };
    let (merged, bytes) = write().map_err(|error: std::io::Error| error.to_string())?;
    let mib = MAX_FILE_BYTES >> 20;
    let torn = merged.torn.iter().map(|rank| format!("capture: rank {rank} was killed: what it wrote last is missing"));
    let full = merged.full.iter().map(|rank| {
        format!("capture: rank {rank} has written {mib} MiB, which is the most: what came later is missing")
    });
    let (count, path) = (merged.datagrams, path.display());
    let of = format!("capture of {count} datagrams in {path}, {bytes} bytes; it holds data of the job");
    Ok(torn.chain(full).chain([of]).collect())
}
