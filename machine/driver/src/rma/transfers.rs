//! Stores and fetches under way, each by as many operations of the provider as it takes.

use std::time::{Duration, Instant};

use mapwire_translation::PageRange;
use mapwire_transport::ofi::Ofi;
use mapwire_transport::ofi::rma::{Direction, RemoteMemory, RmaDone, RmaError};
use mapwire_wire::NodeId;

use super::announcements::Name;
use super::sources::Sources;

/// Bytes of an operation at most.
const OPERATION_BYTES: u64 = 1 << 20;
/// Operations of one transfer that may be under way.
const MOST_UNDER_WAY: usize = 8;
/// How long the library may keep memory of a transfer whose peer is gone.
const LONGEST_AFTER_GONE: Duration = Duration::from_secs(10);

/// A store to or fetch from a peer's memory.
#[derive(Debug)]
pub(super) struct Transfer {
    direction: Direction,
    peer: NodeId,
    name: Name,
    memory: RemoteMemory,
    /// Where the next operation begins: in the peer's memory, and in that of this process.
    offset: u64,
    address: u64,
    /// Bytes that no operation was begun for, and those of the others.
    left: u64,
    begun_bytes: u64,
    under_way: usize,
    error: Option<RmaError>,
    /// The pages that are held for it.
    range: PageRange,
    gone_since: Option<Instant>,
}

impl Transfer {
    pub(super) fn new(
        direction: Direction,
        name: Name,
        (memory, offset): (RemoteMemory, u64),
        (address, length): (u64, u64),
        range: PageRange,
    ) -> Self {
        Self {
            direction,
            peer: name.0,
            name,
            memory,
            offset,
            address,
            left: length,
            begun_bytes: 0,
            under_way: 0,
            error: None,
            range,
            gone_since: None,
        }
    }

    /// Begins what can be begun.
    fn advance(&mut self, number: usize, ofi: &mut Ofi, sources: &Sources) {
        while self.left > 0 && self.error.is_none() && self.under_way < MOST_UNDER_WAY {
            let most = self.left.min(OPERATION_BYTES);
            let pieces = sources.pieces(self.address, most, ofi.max_pieces());
            let bytes: u64 = pieces.iter().map(|piece| piece.bytes as u64).sum();
            if bytes == 0 {
                // Its pages are held, and so are known.
                self.error = Some(RmaError::BadPiece);
                return;
            }
            let remote = (&self.memory, self.offset);
            match ofi.transfer(self.direction, self.peer, remote, &pieces, number as u64) {
                Ok(()) => {
                    self.under_way += 1;
                    self.offset += bytes;
                    self.address += bytes;
                    self.left -= bytes;
                    self.begun_bytes += bytes;
                }
                Err(RmaError::WouldBlock) => return,
                Err(error) => self.error = Some(error),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.under_way == 0 && (self.left == 0 || self.error.is_some())
    }

    fn handle_done(&mut self, done: RmaDone) {
        self.under_way -= 1;
        if let Err(error) = done.result {
            self.error.get_or_insert(error);
        }
    }
}

/// How a transfer has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The export.
    pub(super) name: Option<Name>,
    /// Bytes of the operations that were begun, or that all of a transfer had.
    pub(super) begun_bytes: u64,
    pub(super) error: Option<RmaError>,
}

#[derive(Debug)]
pub(super) enum Progress {
    UnderWay,
    Over(Ended),
    /// The peer is long gone, and the library uses the memory still.
    Stuck,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct Transfers(Vec<Option<Transfer>>);

impl Transfers {
    pub(super) fn begin(&mut self, mut transfer: Transfer, ofi: &mut Ofi, sources: &Sources) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let number = free.unwrap_or(self.0.len());
        if free.is_none() {
            self.0.push(None);
        }
        transfer.advance(number, ofi, sources);
        self.0[number] = Some(transfer);
        number
    }

    /// Lets the provider work, and notes what is over. Whether anything is.
    pub(super) fn drain(&mut self, ofi: &mut Ofi) -> bool {
        let mut any = false;
        // Without a transfer under way there is nothing.
        while self.0.iter().any(Option::is_some)
            && let Some(done) = ofi.poll_done()
        {
            any = true;
            if let Some(Some(transfer)) = self.0.get_mut(done.token as usize) {
                transfer.handle_done(done);
            }
        }
        any
    }

    /// Begins what can be begun of a transfer, and says how it stands. `is_gone`: whether its peer is.
    pub(super) fn progress(&mut self, number: usize, ofi: &mut Ofi, sources: &mut Sources, is_gone: bool) -> Progress {
        let Some(Some(transfer)) = self.0.get_mut(number) else {
            return Progress::Over(Ended::default());
        };
        transfer.advance(number, ofi, sources);
        if !transfer.is_over() && is_gone {
            transfer.error.get_or_insert(RmaError::PeerGone(transfer.peer));
            let since = *transfer.gone_since.get_or_insert_with(Instant::now);
            if since.elapsed() > LONGEST_AFTER_GONE {
                return Progress::Stuck;
            }
        }
        if !transfer.is_over() {
            return Progress::UnderWay;
        }
        sources.release(transfer.range);
        let ended = self.0[number].take().map(|transfer| Ended {
            name: Some(transfer.name),
            begun_bytes: transfer.begun_bytes,
            error: transfer.error,
        });
        Progress::Over(ended.unwrap_or_default())
    }
}
