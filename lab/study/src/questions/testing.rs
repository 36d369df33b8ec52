//! Traces that tests make up.

use mapwire_trace::{Block, Metadata};
use mapwire_translation::Process;
use mapwire_wire::TraceOp;

use super::source::{Passed, Source, Take};
use crate::decode::{Decoder, Selection};
use crate::files::{FileError, TraceFindings};
use crate::study::{Allowed, Request, Study, StudyError};

/// Node, process, operation, first page, pages.
pub(super) type Record = (u16, u16, TraceOp, u64, u64);

/// Sends: node, process, first page, pages.
pub(super) fn sends(records: &[(u16, u16, u64, u64)]) -> Vec<Record> {
    let send = |(node, process, page, count): &(u16, u16, u64, u64)| {
        (*node, *process, TraceOp::Send, *page, *count)
    };
    records.iter().map(send).collect()
}

/// Traces in memory, named `t0`, `t1` and so on.
pub(super) struct Made {
    pub(super) traces: Vec<Vec<Record>>,
}

impl Made {
    pub(super) fn new(traces: Vec<Vec<Record>>) -> Self {
        Made { traces }
    }
}

impl Source for Made {
    fn traces(&self) -> usize {
        self.traces.len()
    }

    fn study(&mut self, request: Request) -> Result<Vec<TraceFindings>, FileError> {
        let one = |(at, records): (usize, &Vec<Record>)| {
            let findings = study(records, &request).map_err(|cause| FileError::Study {
                file: format!("t{at}"),
                cause,
            })?;
            Ok(TraceFindings {
                path: format!("t{at}.mwt").into(),
                metadata: Metadata::default(),
                findings,
                damage: None,
            })
        };
        self.traces.iter().enumerate().map(one).collect()
    }

    fn pass(
        &mut self,
        trace: usize,
        selection: Selection,
        take: &mut Take<'_>,
    ) -> Result<Passed, FileError> {
        let mut decoder = Decoder::new(selection);
        let records = &self.traces[trace];
        for (at, (node, process, op, page, count)) in records.iter().enumerate() {
            decoder
                .operation(
                    *node,
                    Process(*process),
                    *op,
                    false,
                    page << 12,
                    count << 12,
                )
                .unwrap();
            // More chunks than one.
            if at == records.len() / 2 {
                assert!(take(decoder.nodes()).is_continue());
                decoder.clear();
            }
        }
        assert!(take(decoder.nodes()).is_continue());
        Ok(Passed {
            name: format!("t{trace}"),
            damage: None,
        })
    }
}

fn study(records: &[Record], request: &Request) -> Result<crate::study::Findings, StudyError> {
    let column = |value: fn(&Record) -> u64| records.iter().map(value).collect::<Vec<_>>();
    let (time, flags) = (vec![0; records.len()], vec![0; records.len()]);
    let node: Vec<u16> = records.iter().map(|it| it.0).collect();
    let process: Vec<u16> = records.iter().map(|it| it.1).collect();
    let op: Vec<u8> = records.iter().map(|it| it.2 as u8).collect();
    let (address, bytes) = (column(|it| it.3 << 12), column(|it| it.4 << 12));
    let block = Block {
        time_ns: &time,
        node: &node,
        process: &process,
        op: &op,
        flags: &flags,
        address: &address,
        bytes: &bytes,
    };
    let mut allowed = Allowed::ALL;
    loop {
        let mut study = Study::new(request.clone(), allowed)?;
        match study.take(&block).and_then(|()| study.finish()) {
            Err(StudyError::Again(less)) if less != allowed => allowed = less,
            other => return other,
        }
    }
}
