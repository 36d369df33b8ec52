//! What hostile peers and programs make: packets and commands that could be fair, but for what is drawn wrong. The parent module has
//! the [`Random`] that they are drawn from.

use mapwire_wire::{
    Atomic, AtomicOp, CommandHeader, CommandRepr, Endpoint, ExportId, FetchId, HEADER_BYTES, HandlerId, Header,
    INLINE_BYTES, ImportId, Key, MessageId, ProcessId, Refusal, Repr, Signal, SignalOp, Width,
};

use super::Random;

/// Mostly below `likely`, at times just above it or far off.
pub(crate) fn near(random: &mut Random, likely: u64) -> u64 {
    match random.below(16) {
        0 => u64::MAX - random.below(64),
        1 => likely.saturating_sub(random.below(9)),
        2 => likely + random.below(9),
        _ => random.below(likely),
    }
}

/// Changes a bit, `percent` times in 100.
pub(crate) fn flip(random: &mut Random, percent: u64, bytes: &mut [u8]) {
    if !bytes.is_empty() && random.chance(percent) {
        let bit = random.below(8 * bytes.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A legal operation.
pub(crate) fn atomic(random: &mut Random) -> Atomic {
    let width = [Width::Four, Width::Eight][random.below(2) as usize];
    let bits = 8 * width.bytes() as u32;
    let mut value = || random.next() >> (u64::BITS - bits);
    let (operand, expected) = (value(), value());
    let op = match random.below(4) {
        0 => AtomicOp::Add,
        1 => AtomicOp::Swap,
        // What untouched memory holds.
        2 => AtomicOp::CompareSwap { expected: 0 },
        _ => AtomicOp::CompareSwap { expected },
    };
    Atomic { op, width, operand }
}

/// A signal at `offset`, of any operation.
fn signal(random: &mut Random, offset: u64) -> Signal {
    let op = [SignalOp::Set, SignalOp::Add, SignalOp::Or][random.below(3) as usize];
    Signal { offset: offset & !7, value: random.next(), op }
}

/// What a peer knows of the node that it attacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// An export that it was granted, and its bytes.
    pub(crate) export: (ExportId, Key),
    pub(crate) length: u64,
    /// The last fetch that it was asked for, and its bytes.
    pub(crate) asked: Option<(FetchId, Key, u64)>,
    /// How often, in 100, a bit of a packet is wrong.
    pub(crate) flips: u64,
}

/// What a packet asks of the peer that it is sent to: a fetch and its bytes.
pub(crate) fn asked(header: &Header, payload: &[u8]) -> Option<(FetchId, Key, u64)> {
    match Repr::parse(header, payload) {
        Ok(Repr::FetchRequest { fetch, reply_key, want_bytes, .. }) => Some((fetch, reply_key, want_bytes)),
        Ok(Repr::Atomic { fetch, reply_key, atomic, .. }) => Some((fetch, reply_key, atomic.width.bytes())),
        _ => None,
    }
}

impl Known {
    /// A packet's header and payload, with the sequence number that is due or, rarely, another.
    pub(crate) fn emit(&self, random: &mut Random, due: u32, repr: &Repr) -> (Header, Vec<u8>) {
        let sequence = match random.below(16) {
            0 if random.chance(self.flips) => random.next() as u32,
            1 if random.chance(self.flips) => due.wrapping_sub(1),
            _ => due,
        };
        let (header, own) = repr.emit(sequence);
        let mut bytes: [u8; HEADER_BYTES] = zerocopy::transmute!(header);
        flip(random, self.flips, &mut bytes);
        let mut header: Header = zerocopy::transmute!(bytes);
        match random.below(8) {
            0 if self.flips > 0 => header.offset.set(near(random, self.length)),
            1 if random.chance(self.flips) => header.length.set(near(random, 600) as u32),
            // Ends at the end of the export, or just behind it.
            2 => {
                let end = self.length + random.below(9);
                let start = end.saturating_sub(u64::from(header.length.get()));
                header.offset.set(start);
            }
            _ => {}
        }
        // The transport checks that.
        header.length.set(header.length.get().min(5000));
        let mut payload = vec![random.byte(); header.payload_bytes() as usize];
        let written = own.len().min(payload.len());
        payload[..written].copy_from_slice(&own[..written]);
        flip(random, self.flips, &mut payload[..written]);
        if self.flips > 0 && written == 0 && payload.len() >= 16 && random.chance(50) {
            let offset = near(random, self.length);
            let at = payload.len() - 16;
            payload[at..].copy_from_slice(&signal(random, offset).to_bytes());
        }
        (header, payload)
    }

    /// A packet that could be fair, but for what is drawn wrong.
    pub(crate) fn packet(&self, random: &mut Random) -> Repr {
        let (mut export, mut key) = self.export;
        match random.below(8) {
            0 => key = Key([random.byte(); 16]),
            1 => export = ExportId(random.below(4) as u32 | (random.below(3) as u32) << 16),
            _ => {}
        }
        let none = (FetchId(0x1_0000), Key([1; 16]), 8);
        let (mut fetch, mut reply_key, wanted) = self.asked.unwrap_or(none);
        match random.below(16) {
            0 => fetch = FetchId(random.below(4) as u32 | (random.below(3) as u32) << 16),
            1 => reply_key = Key([random.byte(); 16]),
            _ => {}
        }
        let offset = random.below(self.length);
        let most = [16, 600][random.below(2) as usize];
        let length = random.within(1, most) as u32;
        let message = MessageId(random.below(20) as u32);
        let last = random.chance(60);
        let reason = [Refusal::Busy, Refusal::Revoked][random.below(2) as usize];
        match random.below(15) {
            12..15 => {
                let atomic = atomic(random);
                Repr::Atomic {
                    key,
                    export,
                    fetch: FetchId(random.below(100) as u32),
                    offset: offset & !(atomic.width.bytes() - 1),
                    atomic,
                    reply_key: Key([random.byte(); 16]),
                }
            }
            0..4 => Repr::Store {
                key,
                export,
                message,
                offset,
                length,
                last,
                notify: last && random.chance(50),
                signal: last && random.chance(50),
            },
            4 | 5 => Repr::FetchRequest {
                key,
                export,
                fetch: FetchId(random.below(100) as u32),
                offset,
                want_bytes: random.below(self.length),
                reply_key: Key([random.byte(); 16]),
            },
            // All of it, or some.
            6 if wanted <= 4096 && random.chance(70) => {
                Repr::FetchReply { reply_key, fetch, offset: 0, length: wanted as u32, last: true }
            }
            6 | 7 => Repr::FetchReply {
                reply_key,
                fetch,
                offset: offset * random.below(2),
                // As for a word, or not.
                length: [4, 8, length][random.below(3) as usize],
                last,
            },
            8 => Repr::FetchRefused { reply_key, fetch, reason },
            9 => Repr::StoreRefused {
                message,
                export: ExportId(0x1_0000),
                reason,
                offset,
                length: u64::from(length),
                count: random.within(1, 50),
            },
            10 => Repr::Handler {
                handler: HandlerId(random.below(3) as u32),
                from: ProcessId(random.below(3) as u16),
                to: ProcessId(random.below(3) as u16),
                length,
            },
            _ => Repr::Nothing,
        }
    }
}

/// What a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// An import, and its bytes.
    pub(crate) import: ImportId,
    pub(crate) import_bytes: u64,
    /// Memory of the process.
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) completion: u32,
    /// A process that takes messages.
    pub(crate) to: Endpoint,
}

/// A command, and the data in it.
pub(crate) fn command(random: &mut Random, wanted: &Wanted) -> (CommandRepr, Vec<u8>) {
    let Wanted { import, import_bytes, address, length, completion, to } = *wanted;
    let offset = near(random, import_bytes);
    let notify = random.chance(50);
    let signal = random.chance(50).then(|| {
        let offset = near(random, import_bytes);
        signal(random, offset)
    });
    let data = vec![random.byte(); random.below(113) as usize];
    let command = match random.below(6) {
        0 => CommandRepr::ShortSend { import, offset, length: data.len() as u32, notify, signal },
        1 => CommandRepr::Fetch { import, offset, address, length, completion },
        2 => CommandRepr::Handler { to, handler: HandlerId(random.within(1, 3) as u32), length: data.len() as u32 },
        3 => CommandRepr::LongSend { import, offset, address, length, notify, signal, completion },
        _ => {
            let atomic = atomic(random);
            CommandRepr::Atomic { import, offset: offset & !(atomic.width.bytes() - 1), address, atomic, completion }
        }
    };
    let has_data = matches!(command, CommandRepr::ShortSend { .. } | CommandRepr::Handler { .. });
    (command, if has_data { data } else { Vec::new() })
}

/// An entry of a command queue, bits of which are wrong `flips` times in 100. `None` if it is no legal command.
pub(crate) fn entry(
    random: &mut Random,
    flips: u64,
    command: &CommandRepr,
    data: &[u8],
) -> Option<(CommandHeader, Vec<u8>)> {
    let mut inline = [0; INLINE_BYTES];
    let (header, used) = command.emit(data, &mut inline).ok()?;
    let mut bytes: [u8; size_of::<CommandHeader>()] = zerocopy::transmute!(header);
    flip(random, flips, &mut bytes);
    flip(random, flips, &mut inline[..used]);
    let header: CommandHeader = zerocopy::transmute!(bytes);
    Some((header, inline[..used].to_vec()))
}
