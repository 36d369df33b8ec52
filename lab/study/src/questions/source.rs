//! Where a question's traces come from.

use std::ops::ControlFlow;
use std::path::Path;

use mapwire_trace::TraceReader;

use crate::decode::{Decoder, Node, Selection};
use crate::files::{FileError, TraceFindings};
use crate::study::{Request, StudyError};

/// Takes the nodes of a trace with some of their lookups; told to stop, the pass ends.
pub type Take<'a> = dyn FnMut(&[Node]) -> ControlFlow<()> + 'a;

/// What a pass tells of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The trace's name.
    pub name: String,
    /// Where its good part ends, if that is not its end.
    pub damage: Option<String>,
}

/// Traces that can be studied, and be gone through lookup by lookup, any number of times.
pub trait Source {
    /// How many traces.
    fn traces(&self) -> usize;

    /// Studies all traces.
    ///
    /// # Errors
    /// That of the first trace that has one.
    fn study(&mut self, request: Request) -> Result<Vec<TraceFindings>, FileError>;

    /// Goes through one trace, by its place from 0. `take` gets chunk after chunk of the lookups of all nodes, in order of time,
    /// each lookup once; the last chunk may be empty.
    ///
    /// # Errors
    /// A trace that cannot be read or has no lookup.
    fn pass(
        &mut self,
        trace: usize,
        selection: Selection,
        take: &mut Take<'_>,
    ) -> Result<Passed, FileError>;
}

/// [`Source::pass`] of a file; `progress` is told how many of its bytes were read.
///
/// # Errors
/// A file that is no trace, has pages of another size, or no lookup of the selection.
pub fn pass_file(
    path: &Path,
    selection: Selection,
    progress: &dyn Fn(u64),
    take: &mut Take<'_>,
) -> Result<Passed, FileError> {
    let file = path.display().to_string();
    let mut reader = TraceReader::open(path)?.keep_good_part();
    let page_bytes = reader.metadata().page_bytes;
    if page_bytes != mapwire_translation::PAGE_BYTES as u64 {
        return Err(FileError::PageSize { file, page_bytes });
    }
    let mut decoder = Decoder::new(selection);
    let mut flow = ControlFlow::Continue(());
    while flow.is_continue()
        && let Some(block) = reader.next_block()?
    {
        let mut done = 0;
        while done < block.len() && flow.is_continue() {
            done = decoder
                .take(&block, done)
                .map_err(|cause| FileError::Study {
                    file: file.clone(),
                    cause: StudyError::Decode(cause),
                })?;
            if decoder.is_full() {
                flow = take(decoder.nodes());
                decoder.clear();
            }
        }
        progress(reader.position_bytes());
    }
    if flow.is_continue() {
        // Whoever stopped has seen enough.
        let _ = take(decoder.nodes());
        if decoder.nodes().iter().all(|node| node.totals.lookups == 0) {
            return Err(FileError::no_lookup(
                file,
                decoder.records(),
                reader.damage().cloned(),
            ));
        }
    }
    Ok(Passed {
        name: crate::files::name_of(path),
        damage: reader.damage().map(ToString::to_string),
    })
}
