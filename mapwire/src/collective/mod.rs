//! Calls that all ranks of the job make together, for small values: barrier, broadcast, gather, reduce.
//!
//! All of them are steps of one kind. Every rank stores a chunk into its slot of rank 0's memory, with the number of the step as a
//! signal. Rank 0 waits for all of them, and then stores its answer into the memory of every rank, with the same signal. So no slot
//! is written again before it has been read, and longer values just take several steps. Each chunk says which call it belongs to,
//! so that calls that do not fit together are found before any value is used.

mod late;

use core::cell::Cell;
use core::fmt;
use std::sync::TryLockError;

use mapwire_vmmc::Importers;
use mapwire_wire::NodeId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::export::Export;
use crate::import::Import;
use crate::node::Node;
use crate::raw;

/// The name under which ranks export their memory to each other.
const NAME: &str = "mapwire.collective";

/// Bytes of a value that a step moves.
const CHUNK: usize = 1024;

/// Bytes of a call's description.
const CALL_BYTES: usize = size_of::<Call>();

/// Bytes of what stands before an answer.
const VERDICT_BYTES: usize = size_of::<Verdict>();

/// Bytes of a slot of rank 0's memory: a signal, a call and a chunk, in whole cache lines.
const SLOT: u64 = ((8 + CALL_BYTES + CHUNK) as u64).next_multiple_of(64);

/// How values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum; of integers modulo 2^64.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// Numbers that [`Node::reduce`] takes.
pub trait Reducible: sealed::Sealed {}

mod sealed {
    use super::Reduction;

    pub trait Sealed: Copy {
        /// A number for the type.
        const TYPE: u64;
        fn to_bytes(self) -> [u8; 8];
        fn from_bytes(bytes: [u8; 8]) -> Self;
        fn reduced(self, other: Self, how: Reduction) -> Self;
    }
}

macro_rules! reducible {
    ($($kind:ty, $number:literal, $add:expr;)*) => {$(
        impl Reducible for $kind {}
        impl sealed::Sealed for $kind {
            const TYPE: u64 = $number;
            fn to_bytes(self) -> [u8; 8] {
                self.to_ne_bytes()
            }
            fn from_bytes(bytes: [u8; 8]) -> Self {
                Self::from_ne_bytes(bytes)
            }
            fn reduced(self, other: Self, how: Reduction) -> Self {
                match how {
                    Reduction::Sum => $add(self, other),
                    Reduction::Min => self.min(other),
                    Reduction::Max => self.max(other),
                }
            }
        }
    )*};
}

reducible! {
    u64, 0, u64::wrapping_add;
    i64, 1, i64::wrapping_add;
    f64, 2, |a, b| a + b;
}

const BARRIER: u64 = 1;
const BROADCAST: u64 = 2;
const GATHER: u64 = 3;
const ALL_GATHER: u64 = 4;
/// Reductions, by type and then by how.
const REDUCE: u64 = 16;

/// A call, as the ranks compare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Call {
    what: u64,
    root: u64,
    length: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, root, length } = self;
        match *what {
            BARRIER => write!(f, "a barrier"),
            BROADCAST => write!(f, "a broadcast of {length} B from rank {root}"),
            GATHER => write!(f, "a gather of {length} B to rank {root}"),
            ALL_GATHER => write!(f, "an all-gather of {length} B"),
            REDUCE.. => {
                let of = ["u64", "i64", "f64"].get((what - REDUCE) as usize / 4);
                let how = ["sum", "minimum", "maximum"].get((what - REDUCE) as usize % 4);
                let (of, how) = (of.unwrap_or(&"?"), how.unwrap_or(&"?"));
                write!(f, "a {how} of {} {of}", length / 8)
            }
            _ => write!(f, "an unknown call"),
        }
    }
}

/// How a step went, as rank 0 tells it.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Verdict {
    /// [`DONE`], [`GONE`] or [`DIFFERS`].
    code: u64,
    /// The rank that made it fail.
    rank: u64,
    theirs: Call,
    ours: Call,
}

const DONE: u64 = 0;
/// A rank is gone.
const GONE: u64 = 1;
/// A rank made another call than rank 0.
const DIFFERS: u64 = 2;

impl Verdict {
    fn into_result(self, node: &Node) -> Result<()> {
        let Self { code, rank, theirs, ours } = self;
        let rank = rank as u32;
        match code {
            DONE => Ok(()),
            GONE => Err(gone(node, rank)),
            _ => Err(Error::CallsDiffer { rank, call: theirs.to_string(), call_of_0: ours.to_string() }),
        }
    }
}

/// Reads a value off the front of bytes that are long enough.
fn front<T: FromBytes + Default>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).map(|(value, _)| value).unwrap_or_default()
}

/// What a rank has for such calls, from its first on.
#[derive(Debug)]
pub(crate) struct Group {
    /// Without a group of its own: else the two would keep each other.
    node: Node,
    /// Where others store: in rank 0 a slot of each, elsewhere the answer of rank 0.
    export: Export,
    /// In rank 0 of all ranks that have got an answer, elsewhere of rank 0.
    imports: Vec<Option<Import>>,
    steps: u64,
}

impl Group {
    /// Exports this rank's memory, and imports that of rank 0.
    fn new(node: &Node, first: Call) -> Result<Self> {
        let node = node.without_group();
        let size = node.size();
        let (bytes, importers) = match node.rank() {
            0 => (SLOT as usize * size, Importers::Job),
            _ => (8 + VERDICT_BYTES + size * CHUNK, Importers::Nodes(vec![NodeId(0)])),
        };
        let buffer: Buffer = node.alloc(bytes)?;
        let export = node.export_buffer(&buffer).name(NAME).reserved().importers(importers).start()?;
        let mut group = Self { export, imports: (0..size).map(|_| None).collect(), steps: 0, node };
        if group.node.rank() != 0 {
            group.import_of(0, first)?;
        }
        Ok(group)
    }

    /// The memory of rank `rank`, for `call`. Waits for it as long as the rank lives.
    fn import_of(&mut self, rank: usize, call: Call) -> Result<&Import> {
        let builder = || self.node.import(rank, NAME).reserved();
        let import = match self.imports[rank].take() {
            Some(import) => import,
            None => match builder().start() {
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    late::say_silent(&self.node, call, rank);
                    builder().timeout(core::time::Duration::MAX).start()?
                }
                found => found?,
            },
        };
        Ok(self.imports[rank].insert(import))
    }

    /// Stores `message` of `call` at `offset` in the memory of rank `rank`, and the number of the step before it.
    fn tell(&mut self, rank: usize, call: Call, message: &[u8], offset: u64) -> Result<()> {
        let step = self.steps;
        self.import_of(rank, call)?.put_signal(message, offset + 8, offset, step).map_err(|error| match error {
            // A rank takes its memory back when it leaves, and at no other time.
            Error::Revoked { rank, .. } => gone(&self.node, rank),
            other => other,
        })
    }

    /// Waits until rank `from` has stored a signal of at least `value` at `offset`. Calls `late` when that takes longer than the timeout:
    /// no error, since ranks may compute for as long as they like.
    fn wait(&self, from: usize, offset: u64, value: u64, late: impl FnOnce()) -> Result<()> {
        let address = self.export.signal_address(offset)?;
        let has_come = || raw::load(address).is_ok_and(|seen| seen >= value);
        let (engine, from) = (self.node.engine(), NodeId(from as u16));
        let look = |thorough: bool| {
            if has_come() {
                return Some(Ok(()));
            }
            let mut driver = thorough.then(|| engine.lock())?;
            // What was sent before is in place: the last look is after that.
            driver.is_gone(from).then(|| if has_come() { Ok(()) } else { Err(Error::from(driver.why_gone(from))) })
        };
        let direct = self.export.direct();
        let waited = engine.wait_for_memory(direct, Some(engine.timeout()), look).or_else(|| {
            late();
            engine.wait_for_memory(direct, None, look)
        });
        // Without a timeout the wait ends only with an outcome.
        waited.unwrap_or(Ok(()))
    }

    /// One step: gives `chunk` to rank 0, has it make the answer from the chunks of all, by rank, and gives those of its bytes that
    /// are for this rank. `chunk_of` says how many bytes a rank gives, `answer_of` how many it gets.
    fn step(
        &mut self,
        call: Call,
        chunk: &[u8],
        chunk_of: impl Fn(usize) -> usize,
        answer_of: impl Fn(usize) -> usize,
        make: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>> {
        if self.node.rank() == 0 {
            return self.serve(call, chunk, chunk_of, answer_of, make);
        }
        let rank = self.node.rank();
        self.steps += 1;
        let message = [call.as_bytes(), chunk].concat();
        self.tell(0, call, &message, SLOT * rank as u64).inspect_err(|_| self.steps -= 1)?;
        self.wait(0, 0, self.steps, || late::say_silent(&self.node, call, 0))?;
        let mut answer = vec![0; VERDICT_BYTES + answer_of(rank)];
        self.export.read(8, &mut answer)?;
        front::<Verdict>(&answer).into_result(&self.node)?;
        Ok(answer.split_off(VERDICT_BYTES))
    }

    /// The step of rank 0.
    fn serve(
        &mut self,
        call: Call,
        chunk: &[u8],
        chunk_of: impl Fn(usize) -> usize,
        answer_of: impl Fn(usize) -> usize,
        make: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>> {
        self.steps += 1;
        let mut chunks = vec![chunk.to_vec()];
        let mut verdict = Verdict::default();
        let mut gone = Vec::new();
        let is_said = Cell::new(false);
        let late = || {
            if !is_said.replace(true) {
                self.say_missing(call);
            }
        };
        for rank in 1..self.node.size() {
            let slot = SLOT * rank as u64;
            if self.wait(rank, slot, self.steps, late).is_err() {
                gone.push(rank);
                verdict = Verdict { code: GONE, rank: rank as u64, ..Verdict::default() };
                continue;
            }
            let mut message = vec![0; CALL_BYTES + chunk_of(rank)];
            self.export.read(slot + 8, &mut message)?;
            let theirs = front(&message);
            if theirs != call && verdict.code == DONE {
                verdict = Verdict { code: DIFFERS, rank: rank as u64, theirs, ours: call };
            }
            chunks.push(message.split_off(CALL_BYTES));
        }
        let answer = if verdict.code == DONE { make(&chunks) } else { Vec::new() };
        let outcome = [verdict.as_bytes(), &answer].concat();
        let mut told = Ok(());
        for rank in (1..self.node.size()).filter(|rank| !gone.contains(rank)) {
            let length = VERDICT_BYTES + answer_of(rank).min(answer.len());
            // Who cannot be told does not keep the others waiting.
            told = told.and(self.tell(rank, call, &outcome[..length], 0));
        }
        verdict.into_result(&self.node)?;
        told?;
        Ok(answer)
    }
}

/// Calls for all ranks of the job together, for small values, as when they set up what they share. All ranks make the same calls
/// in the same order, one thread of each at a time. None needs anything but the job: the first call of a rank prepares it. All ranks
/// pass through rank 0, each KiB in a step there and back, so that the time grows with the number of ranks.
///
/// Ranks believe what others of their job give. After an error some ranks may have been served and others not.
impl Node {
    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// A rank is gone (the error names it); [`Error::CallsDiffer`]: a rank makes another call, or with another length or root: all
    /// ranks then get this error, and may go on; [`Error::CallsOverlap`]: another thread of this rank is in such a call, or this is a
    /// handler of a notification that came in one.
    pub fn barrier(&self) -> Result<()> {
        let call = Call { what: BARRIER, root: 0, length: 0 };
        self.with_group(call, |group| {
            group.step(call, &[], |_| 0, |_| 0, |_| Vec::new())?;
            Ok(())
        })
    }

    /// Copies `data` of rank `root` to `data` of all ranks, which are of one length.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier), and a root outside the job.
    pub fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()> {
        let call = Call { what: BROADCAST, root: root as u64, length: data.len() as u64 };
        let (rank, size) = (self.rank(), self.size());
        self.with_group(call, |group| {
            for chunk in chunks_of(data.len()) {
                let bytes = &mut data[chunk];
                let length = bytes.len();
                let of_root = |rank| if rank == root { length } else { 0 };
                let got = group.step(
                    call,
                    &bytes[..of_root(rank)],
                    of_root,
                    |_| if root < size { length } else { 0 },
                    |chunks| chunks.get(root).cloned().unwrap_or_default(),
                )?;
                self.peer(root)?;
                bytes.copy_from_slice(&got);
            }
            Ok(())
        })
    }

    /// Collects `data` of all ranks, which are of one length, at rank `root`: there it gives them by rank, elsewhere `None`.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn gather(&self, root: usize, data: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let call = Call { what: GATHER, root: root as u64, length: data.len() as u64 };
        let all = self.gather_to(call, data, |rank| rank == root)?;
        self.peer(root)?;
        Ok((self.rank() == root).then_some(all))
    }

    /// Collects `data` of all ranks, which are of one length, at all of them, by rank.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn all_gather(&self, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        let call = Call { what: ALL_GATHER, root: 0, length: data.len() as u64 };
        self.gather_to(call, data, |_| true)
    }

    /// Puts in the place of each of `values` what the values of all ranks there make together; in every rank the same, also of
    /// floating-point numbers: they are taken in the order of ranks. The least and greatest pass over NaN. All ranks give
    /// as many values.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn reduce<T: Reducible>(&self, how: Reduction, values: &mut [T]) -> Result<()> {
        let call = Call { what: REDUCE + 4 * T::TYPE + how as u64, root: 0, length: values.len() as u64 * 8 };
        self.with_group(call, |group| {
            for chunk in chunks_of(values.len() * 8) {
                let values = &mut values[chunk.start / 8..chunk.end / 8];
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_bytes()).collect();
                let length = bytes.len();
                let reduced =
                    group.step(call, &bytes, |_| length, |_| length, |chunks| reduce_chunks::<T>(chunks, how))?;
                for (value, reduced) in values.iter_mut().zip(words(&reduced)) {
                    *value = reduced;
                }
            }
            Ok(())
        })
    }

    /// Collects data of all ranks where `is_root` says; empty lists elsewhere.
    fn gather_to(&self, call: Call, data: &[u8], is_root: impl Fn(usize) -> bool) -> Result<Vec<Vec<u8>>> {
        let size = self.size();
        self.with_group(call, |group| {
            let mut all = vec![Vec::new(); size];
            for chunk in chunks_of(data.len()) {
                let length = chunk.len();
                let got = group.step(
                    call,
                    &data[chunk],
                    |_| length,
                    |rank| if is_root(rank) { size * length } else { 0 },
                    |chunks| chunks.concat(),
                )?;
                // The root alone has got them, and rank 0, through which they pass.
                for (all, got) in all.iter_mut().zip(got.chunks(length.max(1))) {
                    all.extend_from_slice(got);
                }
            }
            Ok(all)
        })
    }

    /// Runs `body` with what this rank has for such calls, made if this is the first.
    fn with_group<R>(&self, call: Call, body: impl FnOnce(&mut Group) -> Result<R>) -> Result<R> {
        self.check_process()?;
        let mut held = match self.group().try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::CallsOverlap),
        };
        if held.is_none() {
            *held = Some(Box::new(Group::new(self, call)?));
        }
        // Nothing else is kept there.
        let group = held.as_mut().and_then(|group| group.downcast_mut());
        group.map_or(Err(Error::CallsOverlap), body)
    }
}

fn gone(node: &Node, rank: u32) -> Error {
    let mut driver = node.engine().lock();
    driver.why_gone(NodeId(rank as u16)).into()
}

/// Ranges of at most [`CHUNK`] bytes; one without bytes if there are none.
fn chunks_of(length: usize) -> impl Iterator<Item = core::ops::Range<usize>> {
    (0..length.max(1)).step_by(CHUNK).map(move |start| start..(start + CHUNK).min(length))
}

fn words<T: Reducible>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        T::from_bytes(bytes)
    })
}

/// What the values of all ranks make together.
fn reduce_chunks<T: Reducible>(chunks: &[Vec<u8>], how: Reduction) -> Vec<u8> {
    let Some((first, rest)) = chunks.split_first() else { return Vec::new() };
    let mut values: Vec<T> = words(first).collect();
    for chunk in rest {
        for (value, other) in values.iter_mut().zip(words::<T>(chunk)) {
            *value = value.reduced(other, how);
        }
    }
    values.iter().flat_map(|value| value.to_bytes()).collect()
}
