//! Donors that join and leave every few hundred milliseconds, while a program stores to its pages and looks whether they are right.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::common::{Place, eventually, signal};
use crate::lending::{Donor, can_start, finish, let_it_run, start};
use rustix::process::Signal;

/// How many donors come; between two the program looks at a quarter of its pages.
const DONORS: usize = 12;

/// A `mapwire serve` that lends nothing: donors are found there whoever of them leaves.
struct Names {
    process: Child,
    store: String,
}

impl Names {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it listens").unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let store = said["address"].as_str().unwrap().to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, store }
    }

    fn donor(&self, place: &Place) -> Donor {
        let args = ["serve", "--names", &self.store, "--json", "--donate", "48M"];
        Donor::of(place.command(&args))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a donor leaves.
#[derive(Clone, Copy)]
enum Leaving {
    /// It is told to end, and brings its pages elsewhere.
    InOrder,
    /// The process that lends is killed; the donor may lend again.
    LenderKilled,
    /// All of it is killed.
    Killed,
}

/// Has a donor leave. `None`: it is still there.
fn leave(mut donor: Donor, how: Leaving, leaving: &mut Vec<Child>) -> Option<Donor> {
    match how {
        Leaving::InOrder => {
            signal(donor.process.id() as i32, Signal::TERM);
            leaving.push(std::mem::replace(&mut donor.process, ended()));
            None
        }
        Leaving::LenderKilled => {
            if let Some(lender) = donor.lender() {
                signal(lender, Signal::KILL);
            }
            Some(donor)
        }
        Leaving::Killed => {
            let lender = donor.lender();
            drop(donor);
            if let Some(lender) = lender {
                signal(lender, Signal::KILL);
            }
            None
        }
    }
}

/// A process that stands for one that somebody else waits for.
fn ended() -> Child {
    std::process::Command::new("true").spawn().unwrap()
}

/// Those that were told to end have done so, in order.
fn assert_gone(leaving: Vec<Child>) {
    for mut process in leaving {
        let mut status = None;
        eventually("a donor that was told to end does so", || {
            status = process.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(0));
    }
}

#[test]
fn donors_that_come_and_go_and_die_at_any_time_lose_nothing_that_the_disk_has_too() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let names = Names::start(&place);
    let mut donors = vec![names.donor(&place), names.donor(&place)];
    let program = start(&place, &names.store, "1");
    eventually("one lends", || donors.iter().any(|it| it.lender().is_some()));
    let_it_run(&place, 2);
    let mut leaving = Vec::new();
    let ways = [Leaving::InOrder, Leaving::Killed, Leaving::InOrder, Leaving::LenderKilled];
    for how in ways.iter().cycle().take(DONORS) {
        donors.push(names.donor(&place));
        let_it_run(&place, 1);
        let stays = leave(donors.remove(0), *how, &mut leaving);
        donors.extend(stays);
        while donors.len() > 3 {
            drop(donors.remove(0));
        }
    }
    let_it_run(&place, 4);
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 50, "{put} put, {got} got");
    assert_gone(leaving);
}

#[test]
fn with_two_copies_donors_that_come_and_go_one_after_the_other_lose_nothing() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let names = Names::start(&place);
    let mut donors: Vec<Donor> = (0..3).map(|_| names.donor(&place)).collect();
    let program = start(&place, &names.store, "2");
    eventually("one lends", || donors.iter().any(|it| it.lender().is_some()));
    let_it_run(&place, 2);
    for _ in 0..DONORS {
        donors.push(names.donor(&place));
        let mut leaving = Vec::new();
        leave(donors.remove(0), Leaving::InOrder, &mut leaving);
        // The next one leaves when nothing is at this one alone.
        assert_gone(leaving);
        let_it_run(&place, 1);
    }
    let_it_run(&place, 4);
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 50, "{put} put, {got} got");
}
