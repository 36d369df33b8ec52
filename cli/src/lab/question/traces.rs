//! The traces of a question: files, each pass over which moves a bar.

use mapwire_study::decode::Selection;
use mapwire_study::files::{FileError, TraceFindings};
use mapwire_study::questions::source::Take;
use mapwire_study::questions::{Passed, QuestionError, Source, pass_file};
use mapwire_study::study::Request;

use super::super::study::TraceOptions;
use super::super::{LabError, UsageError};
use crate::progress::Progress;

impl Source for &TraceOptions {
    fn traces(&self) -> usize {
        self.traces.len()
    }

    fn study(&mut self, request: Request) -> Result<Vec<TraceFindings>, FileError> {
        self.run(&request)
    }

    fn pass(
        &mut self,
        trace: usize,
        selection: Selection,
        take: &mut Take<'_>,
    ) -> Result<Passed, FileError> {
        let path = &self.traces[trace];
        let bytes = std::fs::metadata(path).ok().map(|it| it.len());
        let progress = Progress::bytes("going through", bytes);
        pass_file(path, selection, &|bytes| progress.at(bytes), take)
    }
}

/// The error for the user: what the options are to blame for is a wrong use of the command.
pub(super) fn failed(error: QuestionError) -> LabError {
    match error {
        QuestionError::Design { .. } | QuestionError::Receives { .. } => {
            Box::new(UsageError(error.to_string()))
        }
        other => other.into(),
    }
}
