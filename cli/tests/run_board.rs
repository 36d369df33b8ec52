//! What ranks learn of each other through the launcher. The ranks are this test program again.

use std::time::{Duration, Instant};

use crate::common::{Place, as_rank};
use mapwire_transport::bells::Sleeper;
use mapwire_transport::board::{NAP, RankState};
use mapwire_transport::rendezvous::{Client, Event, JobAddress, ToRank};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket};

fn join() -> Client {
    let address = std::env::var(JobAddress::VARIABLE).expect("not in a job");
    let address = address.parse().unwrap();
    let rank = std::env::var("MAPWIRE_RANK").unwrap().parse().unwrap();
    Client::join(&address, rank, Duration::from_secs(30)).unwrap()
}

/// Sleeps on the board until `rank` has `state`, and says so.
fn await_state(client: &Client, rank: u32, state: RankState) {
    let board = client.board();
    let slept =
        board.sleep(client.rank(), Sleeper::Waiting, |_| board.state(rank) == state, Some(crate::common::LONG), || NAP);
    assert!(slept.found, "rank {rank} is {}, never became {state}", board.state(rank));
    println!("\nsaw {state}");
}

fn run(ranks: &str, body: &str, more: &[&str]) -> crate::common::Done {
    let place = Place::new();
    let rank = as_rank(body);
    let mut args = vec!["run", "-n", ranks];
    args.extend_from_slice(more);
    args.push("--");
    args.extend(rank.iter().map(String::as_str));
    let done = place.run(&args);
    place.assert_empty();
    done
}

#[test]
fn a_rank_that_exits_without_leaving_is_seen_as_left() {
    let done = run("3", "run_board::body_exits_without_leaving", &[]).code(0);
    assert_eq!(done.out().matches("saw left").count(), 2, "{}", done.out());
}

#[test]
#[ignore = "a rank of the test above"]
fn body_exits_without_leaving() {
    let client = join();
    if client.rank() == 0 {
        std::process::exit(0);
    }
    await_state(&client, 0, RankState::Left);
    client.leave().unwrap();
}

#[test]
fn a_rank_that_a_script_starts_joins() {
    let place = Place::new();
    let text = format!("({} & wait); exit 0", as_rank("run_board::body_joins").join(" "));
    let done = place.sh(2, &text).code(0);
    assert_eq!(done.out().matches("joined as").count(), 2, "{}", done.out());
}

#[test]
#[ignore = "a rank of the test above"]
fn body_joins() {
    let client = join();
    println!("\njoined as {}", client.rank());
    client.leave().unwrap();
}

#[test]
fn a_process_that_is_not_of_the_job_is_told_so() {
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let text = "echo $MAPWIRE_JOB > part; mv part job; while [ ! -e end ]; do sleep 0.02; done";
    let job = place.start_sh(1, text);
    crate::common::eventually("the rank runs", || place.has("job"));
    let address = std::fs::read_to_string(place.folder.join("job")).unwrap();
    let open = mapwire_testing::OpenFolder::new();
    let told = |user: Option<u32>| {
        let line = as_rank("run_board::body_is_a_stranger");
        let mut command = std::process::Command::new(open.copy_of(&line[0]));
        command.args(&line[1..]).env("MAPWIRE_RANK", "0");
        command.env(JobAddress::VARIABLE, address.trim());
        user.map(|user| command.uid(user).gid(user));
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = told(None);
    assert!(said.contains("not part of the job"), "{said}");
    if rustix::process::geteuid().is_root() {
        let said = told(Some(65_534));
        assert!(said.contains("user is not the job's"), "{said}");
    } else {
        mapwire_testing::skip!("only root can start a process of another user");
    }
    place.write("end", "");
    job.wait().code(0);
}

#[test]
#[ignore = "a process of the test above"]
fn body_is_a_stranger() {
    let address = std::env::var(JobAddress::VARIABLE).unwrap();
    let address = address.parse().unwrap();
    let refused = Client::join(&address, 0, Duration::from_secs(30)).unwrap_err();
    println!("\n{refused}");
}

/// Lines of the launcher that say `what`, and whether it has said how many it left out.
fn count(done: &crate::common::Done, what: &str) -> (usize, bool) {
    let lines = done.err();
    let said = lines.lines().filter(|line| line.contains(what)).count();
    (said, lines.contains("more, not said one by one"))
}

#[test]
fn a_rank_that_breaks_the_protocol_without_end_does_not_fill_the_log() {
    let done = run("2", "run_board::body_talks_rubbish", &[]).code(0);
    let (said, is_counted) = count(&done, "broke the rendezvous protocol and");
    assert!(said == 8 && is_counted, "{}", done.err());
    let rest = "of rank 1: 1992 more";
    assert!(done.err().contains(rest), "{}", done.err());
}

#[test]
#[ignore = "a rank of the test above"]
fn body_talks_rubbish() {
    let client = join();
    if client.rank() == 1 {
        let address = std::env::var(JobAddress::VARIABLE).unwrap();
        let (name, _) = address.split_once(':').unwrap();
        let place = SocketAddrUnix::new_abstract_name(format!("mapwire-{name}").as_bytes());
        let place = place.unwrap();
        for _ in 0..2000 {
            let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
            connect(&socket, &place).unwrap();
            send(&socket, b"rubbish", SendFlags::NOSIGNAL).unwrap();
            // Until it is closed: one by one, so that none is pushed out.
            let mut bytes = [0; 8];
            let _ = recv(&socket, &mut bytes[..], RecvFlags::empty());
        }
    }
    client.leave().unwrap();
}

#[test]
fn a_rank_that_stops_without_end_does_not_fill_the_log() {
    let place = Place::new();
    let text = "(i=0; while [ $i -lt 40 ]; do kill -STOP $$; sleep 0.02; kill -CONT $$; i=$((i+1)); done); exit 0";
    let done = place.sh(1, text).code(0);
    let (said, is_counted) = count(&done, "was stopped by");
    assert!(said == 8 && is_counted, "{}", done.err());
}

#[test]
fn a_killed_rank_is_seen_as_dead_before_the_job_ends() {
    let place = Place::new();
    // The survivor ignores SIGTERM, so that it can still say what it saw.
    let text = format!("trap '' TERM; exec {}", as_rank("run_board::body_is_killed").join(" "));
    let done = place.sh(2, &text).code(137);
    assert_eq!(done.out().matches("saw dead").count(), 1, "{}", done.out());
    place.assert_empty();
}

#[test]
#[ignore = "a rank of the test above"]
fn body_is_killed() {
    let client = join();
    if client.rank() == 0 {
        let board = client.board();
        board.sleep(0, Sleeper::Waiting, |_| board.state(1) == RankState::Joined, Some(crate::common::LONG), || NAP);
        std::thread::sleep(Duration::from_millis(50));
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    }
    await_state(&client, 0, RankState::Dead);
}

#[test]
fn a_stopped_rank_is_seen_as_stopped_and_again_as_joined() {
    let done = run("2", "run_board::body_is_stopped", &["--stop-grace", "30"]).code(0);
    assert!(done.out().contains("saw stopped") && done.out().contains("saw joined"), "{}", done.out());
}

#[test]
#[ignore = "a rank of the test above"]
fn body_is_stopped() {
    let client = join();
    let board = client.board().clone();
    if client.rank() == 0 {
        board.sleep(0, Sleeper::Waiting, |_| board.state(1) == RankState::Joined, Some(crate::common::LONG), || NAP);
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::STOP).unwrap();
        // The signal may reach another thread first, so this one may get a little further.
        board.sleep(0, Sleeper::Waiting, |_| board.state(1) == RankState::Left, Some(crate::common::LONG), || NAP);
    } else {
        await_state(&client, 0, RankState::Stopped);
        crate::common::signal(board.pid(0) as i32, rustix::process::Signal::CONT);
        await_state(&client, 0, RankState::Joined);
    }
    client.leave().unwrap();
}

#[test]
fn every_pair_of_eight_ranks_gets_one_channel() {
    let done = run("8", "run_board::body_connects_to_all", &[]).code(0);
    assert_eq!(done.out().matches("saw all").count(), 8, "{}", done.out());
}

#[test]
#[ignore = "a rank of the test above"]
fn body_connects_to_all() {
    let mut client = join();
    for peer in (0..client.size()).filter(|p| *p != client.rank()) {
        client.connect(peer).unwrap();
    }
    let mut seen = vec![false; client.size() as usize];
    seen[client.rank() as usize] = true;
    while !seen.iter().all(|s| *s) {
        match client.wait(crate::common::LONG).unwrap() {
            Event::Message(ToRank::Channel { peer }, Some(fd)) => {
                assert!(!std::mem::replace(&mut seen[peer as usize], true), "twice");
                assert!(rustix::fs::fstat(&fd).unwrap().st_size > 0);
            }
            other => panic!("{other:?}"),
        }
    }
    println!("\nsaw all");
    // Nobody leaves before all have asked, or they would hear that it has gone.
    std::fs::write(format!("seen{}", client.rank()), "").unwrap();
    let end = Instant::now() + crate::common::LONG;
    while !(0..client.size()).all(|r| std::path::Path::new(&format!("seen{r}")).exists()) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    client.leave().unwrap();
}

#[test]
fn the_name_of_the_rendezvous_is_gone_after_the_job() {
    let place = Place::new();
    let done = place.sh(1, "echo $MAPWIRE_JOB; cat /proc/net/unix").code(0);
    let out = done.out();
    let name = format!("@mapwire-{}", &out["[0] ".len()..][..32]);
    assert!(out.contains(&name), "{out}");
    assert!(!std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name));
}
