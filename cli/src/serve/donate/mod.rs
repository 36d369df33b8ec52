//! `mapwire serve --donate`: lends memory of this host to programs under `mapwire far`, each by a process of its own.

mod books;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use mapwire::global::DirectoryPlacement;
use mapwire_host::log_limit::LogLimit;
use mapwire_host::page::PAGE_BYTES;
use mapwire_launch::LaunchError;
use mapwire_launch::names::{JobName, Loan, Offer};
use mapwire_names::{SharedSecret, StoreAddress};
use mapwire_settings::DIRECTORY;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host::{Idleness, Memory};
use crate::stdio;
use books::Books;

const LOOK: Duration = Duration::from_millis(200);
/// How often the offer is kept, and the host looked at.
const KEEP: Duration = Duration::from_secs(1);
/// How long processes have to bring their pages elsewhere at the end.
const LEAVING: Duration = Duration::from_secs(4);

/// Log lines that programs with the secret can cause without end.
const UNSTARTED: &str = "processes that lend memory and could not be started";

#[derive(Debug)]
pub(super) struct Donor {
    pub(super) store: StoreAddress,
    pub(super) secret_file: PathBuf,
    pub(super) pages: u64,
    pub(super) idle_only: bool,
    /// Where lending processes have their parts of the page directory; `None`: where `MAPWIRE_DIRECTORY` says.
    pub(super) directory: Option<DirectoryPlacement>,
    pub(super) json: bool,
}

enum Said {
    More(JobName),
    Ended(JobName),
}

struct Lender {
    child: Child,
    orders: Option<ChildStdin>,
    said: (u64, bool),
}

impl Donor {
    fn begun(&self) -> String {
        let (bytes, store) = (self.pages * PAGE_BYTES as u64, &self.store);
        if self.json {
            let row =
                serde_json::json!({ "kind": "event", "event": "donating", "bytes": bytes, "names": store.to_string() });
            return row.to_string();
        }
        let when = if self.idle_only { ", while this host is idle" } else { "" };
        format!("{} MiB are lent to programs of `mapwire far --donors {store}`{when}", bytes >> 20)
    }

    pub(super) fn run(&self, stop: BorrowedFd<'_>) -> Result<(), LaunchError> {
        let shared = SharedSecret::read(&self.secret_file)?;
        let mut offer = Offer::begin(&self.store, &shared, self.pages)?;
        // Whoever reads this finds the donor.
        stdio::note(writeln!(io::stdout(), "{}", self.begun()).and_then(|()| io::stdout().flush()));
        let (says, heard) = mpsc::channel();
        let mut lenders: HashMap<JobName, Lender> = HashMap::new();
        let mut books = Books::new(self.pages);
        let mut idleness = self.idle_only.then(Idleness::new);
        let mut next_keep = Instant::now();
        let mut has_warned = false;
        let mut sparing = LogLimit::default();
        while !is_readable(stop) {
            while let Some(left_out) = sparing.poll(Instant::now()) {
                eprintln!("mapwire: {left_out}");
            }
            match heard.recv_timeout(LOOK) {
                Ok(Said::More(job)) => books.want(&job),
                Ok(Said::Ended(job)) => {
                    books.end(&job);
                    if let Some(mut lender) = lenders.remove(&job) {
                        let _ = lender.child.wait();
                        self.tell("ended", &job, &lender.child);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if Instant::now() >= next_keep {
                next_keep = Instant::now() + KEEP;
                let processes = lenders.values().map(|lender| lender.child.id());
                let is_idle = idleness.as_mut().is_none_or(|it| it.look(processes));
                books.set_limit(self.limit(books.lent(), is_idle));
                let kept = offer.keep();
                warn(kept, &mut has_warned);
            }
            let asked = offer.asked();
            for loan in asked.as_ref().map_or(&[][..], |asked| asked) {
                if books.begin(&loan.job) {
                    match self.start(loan, &says) {
                        Ok(lender) => {
                            self.tell("lends", &loan.job, &lender.child);
                            lenders.insert(loan.job.clone(), lender);
                        }
                        Err(error) => {
                            books.end(&loan.job);
                            if sparing.admit(UNSTARTED, Instant::now()) {
                                eprintln!("mapwire: a process that lends memory cannot be started: {error}");
                            }
                        }
                    }
                }
            }
            warn(asked.map(|_| ()), &mut has_warned);
            for (job, lender) in &mut lenders {
                lender.order(books.of(job));
            }
        }
        drop(offer);
        leave(lenders);
        Ok(())
    }

    fn limit(&self, lent: u64, is_idle: bool) -> u64 {
        if !is_idle {
            return 0;
        }
        let page = PAGE_BYTES as u64;
        let spared = Memory::now().map_or(self.pages, |memory| memory.to_donate(lent * page) / page);
        self.pages.min(spared)
    }

    fn start(&self, loan: &Loan, says: &Sender<Said>) -> io::Result<Lender> {
        // By this name also when the file has been replaced.
        let mut child = Command::new("/proc/self/exe")
            .arg0("mapwire")
            .args(["lend", "--pages", &self.pages.to_string()])
            .args(["--of", &loan.pages.to_string()])
            .env("MAPWIRE_JOB_NAME", loan.job.to_string())
            .env("MAPWIRE_RANK", loan.rank.to_string())
            .env("MAPWIRE_SIZE", loan.size.to_string())
            .env("MAPWIRE_NAMES", self.store.to_string())
            .env("MAPWIRE_SECRET_FILE", &self.secret_file)
            .envs(self.directory.map(|it| (DIRECTORY, it.name())))
            // That a program has ended is no reason to warn.
            .env("MAPWIRE_LOG", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process, which lets the others end in order.
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take();
        if let Some(lines) = child.stdout.take() {
            let (job, says) = (loan.job.clone(), says.clone());
            std::thread::Builder::new().spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    if line == "more" && says.send(Said::More(job.clone())).is_err() {
                        return;
                    }
                }
                let _ = says.send(Said::Ended(job));
            })?;
        }
        Ok(Lender { child, orders, said: (0, false) })
    }

    fn tell(&self, event: &str, job: &JobName, child: &Child) {
        if self.json {
            let row = serde_json::json!({ "kind": "event", "event": event, "job": job.to_string(), "pid": child.id() });
            println!("{row}");
        }
    }
}

impl Lender {
    /// Says how many pages are to be lent, and whether there may be more, if that has changed.
    fn order(&mut self, (pages, may_grow): (u64, bool)) {
        if self.said == (pages, may_grow) {
            return;
        }
        self.said = (pages, may_grow);
        if let Some(orders) = &mut self.orders {
            // A process that is gone says so itself.
            let _ = writeln!(orders, "{pages} {}", u8::from(may_grow));
        }
    }
}

fn leave(mut lenders: HashMap<JobName, Lender>) {
    for lender in lenders.values_mut() {
        lender.orders = None;
    }
    let ends = Instant::now() + LEAVING;
    for lender in lenders.values_mut() {
        while Instant::now() < ends && matches!(lender.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = lender.child.kill();
        let _ = lender.child.wait();
    }
}

fn warn(outcome: Result<(), LaunchError>, has_warned: &mut bool) {
    match outcome {
        Ok(()) => *has_warned = false,
        Err(error) if !*has_warned => {
            *has_warned = true;
            eprintln!("mapwire: {error}; programs that have memory keep it");
        }
        Err(_) => {}
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let now = Timespec::default();
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
