//! `mapwire lend`: the process by which `mapwire serve --donate` lends memory to one program. Its standard input says how much.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mapwire::ErrorKind;
use mapwire::global::Donation;
use mapwire_launch::Detected;

use crate::args::LendArgs;
use crate::{Failure, failing, stdio};

/// How long the program has to come.
const MEETING: Duration = Duration::from_secs(10);
/// How long one look at the orders takes at most to come.
const TURN: Duration = Duration::from_millis(50);
/// How long pages have to find other donors at the end.
const LEAVING: Duration = Duration::from_secs(3);
/// How long it is waited for the next page to go, where there are to be fewer.
const STUCK: Duration = Duration::from_secs(5);

/// Orders of `mapwire serve`: lines of a number of pages, and whether more may be asked for.
#[derive(Debug, Default)]
struct Orders {
    pages: AtomicU32,
    may_grow: AtomicBool,
    are_over: AtomicBool,
}

impl Orders {
    fn take(&self, line: &str) -> Option<()> {
        let (pages, may_grow) = line.split_once(' ')?;
        self.may_grow.store(may_grow == "1", Ordering::Relaxed);
        self.pages.store(pages.parse().ok()?, Ordering::Release);
        Some(())
    }
}

/// Whether pages that are to go do not: they are nowhere but here and at one other donor, and no third takes them.
#[derive(Debug, Default)]
struct Shrinking {
    /// The fewest pages that have served since, and since when.
    least: Option<(u32, Instant)>,
}

impl Shrinking {
    fn is_stuck(&mut self, serving: u32, pages: u32, now: Instant) -> bool {
        let (least, since) = match self.least {
            _ if serving <= pages => {
                self.least = None;
                return false;
            }
            Some((least, since)) if serving >= least => (least, since),
            _ => (serving, now),
        };
        self.least = Some((least, since));
        now.saturating_duration_since(since) >= STUCK
    }
}

pub(crate) fn command(args: &LendArgs) -> Result<ExitCode, Failure> {
    let Some(Detected::Names(job)) = mapwire_launch::detect().map_err(failing(1))? else {
        return Err((2, "lend: `mapwire serve --donate` starts this, for a program that wants memory".into()));
    };
    let orders = Arc::new(Orders::default());
    let of_reader = Arc::clone(&orders);
    let reader = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.ok().and_then(|line| of_reader.take(&line)).is_none() {
                break;
            }
        }
        of_reader.are_over.store(true, Ordering::Release);
    });
    reader.map_err(failing(1))?;
    let lent = Donation::join(&job, MEETING, args.pages, args.of).and_then(|lent| lend(lent, &orders));
    match lent {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The program has ended meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Timeout) => {
            tracing::debug!(%error, "nobody to lend to");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(failing(1)(error)),
    }
}

fn lend(mut donation: Donation, orders: &Orders) -> Result<(), mapwire::Error> {
    let mut asked_at = None;
    let mut leaves_at: Option<Instant> = None;
    let mut shrinking = Shrinking::default();
    loop {
        let are_over = orders.are_over.load(Ordering::Acquire) || leaves_at.is_some();
        if are_over && leaves_at.is_none() {
            leaves_at = Some(Instant::now() + LEAVING);
        }
        let pages = if are_over { 0 } else { orders.pages.load(Ordering::Acquire) };
        let may_grow = !are_over && orders.may_grow.load(Ordering::Relaxed);
        if !may_grow {
            asked_at = None;
        }
        // It was asked for, and the answer is under way.
        let has_asked = asked_at == Some(pages);
        let standing = donation.serve(TURN, pages, may_grow && !has_asked)?;
        if may_grow && standing.wants_more && !has_asked {
            asked_at = Some(pages);
            stdio::note(writeln!(io::stdout(), "more").and_then(|()| io::stdout().flush()));
        }
        if !are_over && shrinking.is_stuck(standing.serving, pages, Instant::now()) {
            // The host needs its memory. The program brings what it has there to its disk when a donor leaves.
            leaves_at = Some(Instant::now() + LEAVING);
        }
        let is_late = leaves_at.is_some_and(|at| Instant::now() >= at);
        if standing.is_over || is_late || are_over && standing.serving == 0 {
            // Its importers are gone or know: giving the memory up page by page would take long.
            std::mem::forget(donation);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_to_go_are_stuck_once_none_has_gone_for_a_while() {
        let mut shrinking = Shrinking::default();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!shrinking.is_stuck(100, 100, at(0)));
        assert!(!shrinking.is_stuck(100, 50, at(1)));
        assert!(!shrinking.is_stuck(90, 50, at(5)));
        assert!(!shrinking.is_stuck(95, 50, at(9)));
        assert!(shrinking.is_stuck(90, 50, at(10)));
        assert!(!shrinking.is_stuck(50, 50, at(11)));
        assert!(!shrinking.is_stuck(60, 50, at(20)));
    }

    #[test]
    fn orders_are_a_number_of_pages_and_whether_there_may_be_more() {
        let orders = Orders::default();
        assert!(orders.take("512 1").is_some());
        assert_eq!(orders.pages.load(Ordering::Relaxed), 512);
        assert!(orders.may_grow.load(Ordering::Relaxed));
        assert!(orders.take("0 0").is_some());
        assert!(!orders.may_grow.load(Ordering::Relaxed));
        for wrong in ["", "512", "-1 1", "x 1"] {
            assert!(orders.take(wrong).is_none(), "{wrong}");
        }
    }
}
