//! The matrix of bytes moved from rank to rank.

use std::collections::BTreeMap;
use std::fmt::Write;

use mapwire_wire::{TraceOp, TraceRecord};
use serde_json::json;

use super::super::output::{escaped, grouped, table};
use super::input::Shape;

/// Columns of a table that somebody reads.
const MOST_COLUMNS: usize = 64;

/// Bytes between ranks.
#[derive(Debug)]
pub(super) struct Matrix {
    ranks: usize,
    /// By rank that gave and rank that got.
    cells: BTreeMap<(usize, usize), u64>,
    /// What each rank sent or fetched, without what is in `cells`.
    others: Vec<u64>,
    /// The last transfer of each rank, which a peer may follow.
    last: Vec<u64>,
}

impl Matrix {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks, cells: BTreeMap::new(), others: vec![0; ranks], last: vec![0; ranks] }
    }

    pub(super) fn count(&mut self, shape: &Shape, record: &TraceRecord) {
        let Some(rank) = shape.rank(record) else { return };
        let bytes = record.bytes.get();
        match record.op() {
            Some(TraceOp::Send | TraceOp::Fetch) => {
                self.last[rank] = bytes;
                self.others[rank] = self.others[rank].saturating_add(bytes);
            }
            Some(op @ (TraceOp::Give | TraceOp::Take)) => {
                self.others[rank] = self.others[rank].saturating_sub(core::mem::take(&mut self.last[rank]));
                let peer = usize::try_from(record.address.get()).unwrap_or(usize::MAX);
                let cell = if op == TraceOp::Give { (rank, peer) } else { (peer, rank) };
                if peer < self.ranks {
                    let sum = self.cells.entry(cell).or_default();
                    *sum = sum.saturating_add(bytes);
                }
            }
            _ => {}
        }
    }

    fn bytes(&self, from: usize, to: usize) -> u64 {
        self.cells.get(&(from, to)).copied().unwrap_or(0)
    }

    /// What each rank gave and got.
    fn sums(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut given, mut got) = (vec![0_u64; self.ranks], vec![0_u64; self.ranks]);
        for (&(from, to), &bytes) in &self.cells {
            given[from] = given[from].saturating_add(bytes);
            got[to] = got[to].saturating_add(bytes);
        }
        (given, got)
    }

    /// A row for each rank that gave bytes, a column for each that got them; of many ranks, only what each gave and got.
    pub(super) fn text(&self) -> String {
        if self.ranks > MOST_COLUMNS {
            let (given, got) = self.sums();
            let row = |rank: usize| {
                let numbers = [given[rank], got[rank], self.others[rank]].map(grouped);
                [format!("rank {rank}")].into_iter().chain(numbers).collect()
            };
            return table(&["bytes of", "given", "got", "without peer"], &(0..self.ranks).map(row).collect::<Vec<_>>());
        }
        let to: Vec<String> = (0..self.ranks).map(|rank| format!("to {rank}")).collect();
        let headings = ["bytes from"].into_iter().chain(to.iter().map(String::as_str)).chain(["all", "without peer"]);
        let headings: Vec<&str> = headings.collect();
        let row = |from: usize| {
            let cells: Vec<u64> = (0..self.ranks).map(|to| self.bytes(from, to)).collect();
            let all = cells.iter().fold(0_u64, |sum, more| sum.saturating_add(*more));
            let numbers = cells.into_iter().chain([all, self.others[from]]).map(grouped);
            [format!("rank {from}")].into_iter().chain(numbers).collect()
        };
        table(&headings, &(0..self.ranks).map(row).collect::<Vec<_>>())
    }

    pub(super) fn json_lines(&self) -> String {
        let pairs = self
            .cells
            .iter()
            .map(|(&(from, to), bytes)| json!({ "kind": "moved", "from": from, "to": to, "bytes": bytes }));
        let (given, got) = self.sums();
        let ranks = (0..self.ranks).map(|rank| {
            json!({
                "kind": "rank", "rank": rank, "given_bytes": given[rank], "got_bytes": got[rank],
                "without_peer_bytes": self.others[rank],
            })
        });
        pairs.chain(ranks).fold(String::new(), |text, row| text + &row.to_string() + "\n")
    }

    /// An SVG drawing: the darker a square, the more bytes, by their logarithm.
    pub(super) fn drawing(&self) -> String {
        const LEFT: f64 = 60.0;
        const TOP: f64 = 60.0;
        let side = (640.0 / self.ranks.max(1) as f64).clamp(2.0, 80.0);
        let size = side * self.ranks as f64;
        let most = self.cells.values().copied().max().unwrap_or(0).max(1) as f64;
        let mut body = String::new();
        // Writing to a string never fails.
        let mut line = |text: std::fmt::Arguments<'_>| _ = writeln!(body, "{text}");
        line(format_args!(
            "<text x=\"{LEFT}\" y=\"20\">bytes from the rank of a row to the rank of a column; most: {}</text>",
            grouped(most as u64)
        ));
        let step = (24.0 / side).ceil() as usize;
        for rank in (0..self.ranks).step_by(step) {
            let middle = side * (rank as f64 + 0.5) + 4.0;
            line(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rank}</text>",
                LEFT - 6.0,
                TOP + middle
            ));
            line(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{rank}</text>",
                LEFT + middle - 4.0,
                TOP - 6.0
            ));
        }
        for (&(from, to), &bytes) in &self.cells {
            let share =
                if bytes == 0 { 0.0 } else { (0.1 + 0.9 * ((bytes + 1) as f64).ln() / (most + 1.0).ln()).min(1.0) };
            let (x, y) = (LEFT + side * to as f64, TOP + side * from as f64);
            let title = escaped(&format!("rank {from} to rank {to}: {} bytes", grouped(bytes)));
            line(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side:.1}\" height=\"{side:.1}\" fill=\"#4477aa\" fill-opacity=\"{share:.3}\"><title>{title}</title></rect>"
            ));
            if side >= 60.0 {
                line(format_args!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    x + side / 2.0,
                    y + side / 2.0 + 4.0,
                    grouped(bytes)
                ));
            }
        }
        line(format_args!(
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{size:.1}\" height=\"{size:.1}\" fill=\"none\" stroke=\"#999\"/>"
        ));
        let (width, height) = (LEFT + size.max(400.0) + 20.0, TOP + size + 20.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}
