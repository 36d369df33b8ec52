//! What is said of calls of all ranks that take longer than the job's timeout.

use super::{CALL_BYTES, Call, Group, SLOT, front};
use crate::node::Node;

/// Ranks that are named one by one.
const NAMED: usize = 16;

/// Says that this rank waits in `call` for rank `rank`, and knows no more.
#[cold]
pub(super) fn say_silent(node: &Node, call: Call, rank: usize) {
    let counts = match rank {
        0 => ", which counts who has come,",
        _ => "",
    };
    say(node, call, &format!("rank {rank}{counts} has not answered"));
}

fn say(node: &Node, call: Call, what: &str) {
    let (rank, timeout) = (node.rank(), node.engine().timeout());
    mapwire_host::stderr::say(format_args!("rank {rank} has waited for {timeout:?} in {call}: {what}"));
}

impl Group {
    /// Says in rank 0 who has come to `call`, who is in another one, and who in none.
    #[cold]
    pub(super) fn say_missing(&self, call: Call) {
        let (mut come, mut missing, mut elsewhere) = (vec![0], Vec::new(), Vec::new());
        for rank in 1..self.node.size() {
            match self.call_of(rank) {
                None => missing.push(rank),
                Some(theirs) if theirs == call => come.push(rank),
                Some(theirs) => elsewhere.push((rank, theirs)),
            }
        }
        let mut what = format!("{} come", have(&come));
        if !missing.is_empty() {
            what += &format!(", {} not", have(&missing));
        }
        for (rank, theirs) in elsewhere.iter().take(NAMED) {
            what += &format!("; rank {rank} waits in {theirs}");
        }
        say(&self.node, call, &what);
    }

    /// The call that a rank has come to in this step.
    fn call_of(&self, rank: usize) -> Option<Call> {
        let mut bytes = [0; 8 + CALL_BYTES];
        self.export.read(SLOT * rank as u64, &mut bytes).ok()?;
        (front::<u64>(&bytes) >= self.steps).then(|| front(&bytes[8..]))
    }
}

/// These ranks, at least one, as the subject of a sentence.
fn have(ranks: &[usize]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let named = named.join(" ");
    match (ranks.len(), ranks.len().saturating_sub(NAMED)) {
        (1, _) => format!("rank {named} has"),
        (_, 0) => format!("ranks {named} have"),
        (_, more) => format!("ranks {named} and {more} more have"),
    }
}
