//! Servers and clients that come and go, as real processes: doors, jobs that are used up, guests that die, and what others try.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mapwire::meeting::{Credentials, Door, DoorName, Greet, JobId, MeetingError, Reception, ReceptionLimits, visit};
use mapwire::{Buffer, Error, Export, Node, NodeConfig, Rights};
use mapwire_testing::OpenFolder;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

const TIMEOUT: Duration = Duration::from_secs(20);
const DOOR: &str = "MAPWIRE_TEST_DOOR";
const USER: &str = "MAPWIRE_TEST_USER";

/// A job of the server: what it exports there.
struct Open {
    node: Node,
    _export: Export,
    buffer: Buffer,
}

#[derive(Default)]
struct Book {
    jobs: BTreeMap<JobId, Open>,
    guests: Vec<(JobId, u32, Credentials)>,
    parted: Vec<(JobId, u32)>,
    closed: Vec<JobId>,
}

#[derive(Default)]
struct Server(Mutex<Book>);

impl Server {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }
}

impl Greet for Server {
    fn open(&self, job: JobId, node: Node) -> Result<(), Error> {
        let buffer = node.alloc(4096)?;
        let inbox = node.export_buffer(&buffer).name("inbox");
        let export = inbox.rights(Rights::ALL).start()?;
        let open = Open { node, _export: export, buffer };
        self.book().jobs.insert(job, open);
        Ok(())
    }

    fn admit(&self, job: JobId, rank: u32, who: &Credentials) {
        self.book().guests.push((job, rank, *who));
    }

    fn part(&self, job: JobId, rank: u32) {
        self.book().parted.push((job, rank));
    }

    fn close(&self, job: JobId) {
        let open = self.book().jobs.remove(&job);
        drop(open);
        self.book().closed.push(job);
    }
}

fn config() -> NodeConfig {
    NodeConfig::from_variables(|_| None).unwrap()
}

/// A server at a door of its own.
struct Serving {
    server: Arc<Server>,
    name: DoorName,
    _reception: Reception,
}

fn serve(what: &str, limits: ReceptionLimits) -> Serving {
    let name: DoorName = format!("test-{what}-{}", std::process::id()).parse().unwrap();
    let server = Arc::new(Server::default());
    let greet = Arc::clone(&server) as Arc<dyn Greet>;
    let reception = Reception::start(config(), greet, limits).unwrap();
    reception.add(Arc::new(Door::open(name.clone()).unwrap()));
    Serving { server, name, _reception: reception }
}

/// A place for what another user runs; `None`, and says so, where this test can start no process of one.
fn for_another_user() -> Option<OpenFolder> {
    if own_user() != 0 {
        mapwire_testing::skip!("only root can start a process of another user");
        return None;
    }
    Some(OpenFolder::new())
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Serving {
    fn visit(&self) -> Result<Node, Error> {
        visit(&self.name, &[own_user()], config(), TIMEOUT).map(|visit| visit.node)
    }

    fn process(&self, what: &str) -> Command {
        self.process_of(&std::env::current_exe().unwrap(), what)
    }

    fn process_of(&self, program: &Path, what: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["--ignored", "--exact", "--nocapture", what]);
        command.env(DOOR, self.name.to_string());
        command.env(USER, own_user().to_string());
        command.stdout(Stdio::piped());
        command
    }

    /// The process that greets, as another user.
    fn of_another_user(&self, open: &OpenFolder) -> Command {
        use std::os::unix::process::CommandExt;
        let program = open.copy_of(std::env::current_exe().unwrap());
        let mut command = self.process_of(&program, "process_that_greets");
        command.uid(65_534).gid(65_534).stderr(Stdio::piped());
        command
    }

    fn wait_until(&self, what: &str, check: impl Fn(&Book) -> bool) {
        let start = Instant::now();
        while !check(&self.server.book()) {
            assert!(start.elapsed() < TIMEOUT, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a guest does: adds its process id to the server's word, and says so.
fn greet(node: &Node) {
    let inbox = node.import(0, "inbox").rights(Rights::ALL).start().unwrap();
    inbox.fetch_add_u64(0, u64::from(std::process::id())).unwrap();
    inbox.flush().unwrap();
}

fn join_as_process() -> Node {
    let name: DoorName = std::env::var(DOOR).unwrap().parse().unwrap();
    let user = std::env::var(USER).unwrap().parse().unwrap();
    visit(&name, &[user], config(), TIMEOUT).unwrap().node
}

#[test]
#[ignore = "a process of other tests"]
fn process_that_greets() {
    greet(&join_as_process());
}

#[test]
#[ignore = "a process of other tests"]
fn process_that_stays() {
    let node = join_as_process();
    greet(&node);
    println!("greeted");
    std::thread::sleep(Duration::from_secs(600));
}

fn await_line(child: &mut Child, line: &str) {
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut bytes = [0; 256];
    while !seen.contains(line) {
        let length = output.read(&mut bytes).unwrap();
        assert!(length > 0, "the process ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
}

#[test]
fn a_guest_of_another_process_joins_the_servers_job_and_the_kernel_says_who_it_is() {
    let serving = serve("one", ReceptionLimits::default());
    let mut child = serving.process("process_that_greets").spawn().unwrap();
    assert!(child.wait().unwrap().success());
    serving.wait_until("the guest has left", |book| !book.parted.is_empty());
    let book = serving.server.book();
    let (job, rank, who) = book.guests[0];
    assert_eq!((job, rank), (1, 1));
    assert_eq!(who.process, child.id());
    assert_eq!(who.user, own_user());
    assert_eq!(who.group, rustix::process::getegid().as_raw());
    let sum = book.jobs[&1].buffer.load_u64(0).unwrap();
    assert_eq!(sum, u64::from(child.id()));
    assert_eq!(book.jobs[&1].node.rank(), 0);
}

#[test]
fn a_guest_that_is_killed_is_noticed_and_its_rank_is_not_given_again() {
    let serving = serve("kill", ReceptionLimits::default());
    let mut child = serving.process("process_that_stays").spawn().unwrap();
    await_line(&mut child, "greeted");
    child.kill().unwrap();
    child.wait().unwrap();
    serving.wait_until("the death is noticed", |book| book.parted == [(1, 1)]);
    greet(&serving.visit().unwrap());
    assert_eq!(serving.server.book().guests[1].1, 2);
}

#[test]
fn jobs_whose_ranks_are_used_up_end_with_their_last_guest_and_others_follow() {
    let limits = ReceptionLimits { ranks: 4, ..ReceptionLimits::default() };
    let serving = serve("turn", limits);
    let stays = serving.visit().unwrap();
    for _ in 0..7 {
        greet(&serving.visit().unwrap());
    }
    // Jobs of three guests: the first still has one, the second is over, the third has room.
    serving.wait_until("the second job is closed", |book| book.closed == [2]);
    greet(&stays);
    drop(stays);
    serving.wait_until("the first job is closed", |book| book.closed == [2, 1]);
    let jobs: Vec<JobId> = serving.server.book().guests.iter().map(|g| g.0).collect();
    assert_eq!(jobs, [1, 1, 1, 2, 2, 2, 3, 3]);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_thousand_guests_in_turn_leave_nothing_behind() {
    let limits = ReceptionLimits { ranks: 64, ..ReceptionLimits::default() };
    let serving = serve("thousand", limits);
    let turn = |guests: usize| {
        for _ in 0..guests {
            greet(&serving.visit().unwrap());
        }
        let all = serving.server.book().guests.len();
        serving.wait_until("all have left", |book| book.parted.len() == all);
    };
    // As many as fill whole jobs, so that both looks find no open one.
    turn(63 * 2);
    serving.wait_until("two jobs are closed", |book| book.closed.len() == 2);
    let (fds, kib) = (descriptors(), resident_kib());
    let start = Instant::now();
    turn(63 * 16);
    let each = start.elapsed() / (63 * 16);
    serving.wait_until("all jobs are closed", |book| book.closed.len() == 18);
    let (fds_now, kib_now) = (descriptors(), resident_kib());
    println!("{each:?} a guest; {fds} then {fds_now} descriptors; {kib} then {kib_now} KiB");
    // Other tests of this program run beside this one.
    assert!(fds_now <= fds + 40, "{fds} descriptors became {fds_now}");
    assert!(kib_now <= kib + 40_000, "{kib} KiB became {kib_now}");
}

fn stranger(serving: &Serving) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let name = format!("mapwire-door-{}-{}", own_user(), serving.name);
    let place = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &place).unwrap();
    socket
}

fn say(socket: impl AsFd, bytes: &[u8]) {
    // The server may have closed by then.
    let _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
}

#[test]
fn who_knocks_and_goes_or_is_silent_or_talks_nonsense_keeps_nobody_out() {
    let visits = (0..5).map(visit_among_rubbish);
    let took: Vec<_> =
        visits.inspect(|took| println!("{took:?}")).take_while(|took| *took > Duration::from_secs(1)).collect();
    assert!(took.len() < 5, "{took:?}");
}

/// How long a visit takes beside those who knock and go or are silent or talk nonsense; load beside may slow it at times.
fn visit_among_rubbish(trial: u32) -> Duration {
    let serving = serve(&format!("rubbish-{trial}"), ReceptionLimits::default());
    let silent: Vec<OwnedFd> = (0..300).map(|_| stranger(&serving)).collect();
    for _ in 0..20 {
        drop(stranger(&serving));
        let rubbish = stranger(&serving);
        say(&rubbish, b"\xff\x00GET / HTTP/1.1");
        let long = stranger(&serving);
        say(&long, &[b'x'; 4000]);
        let goes = stranger(&serving);
        let release = env!("CARGO_PKG_VERSION");
        say(&goes, format!("mapwire-knock {release}").as_bytes());
        drop(goes);
        let repeats = stranger(&serving);
        for _ in 0..3 {
            say(&repeats, format!("mapwire-knock {release}").as_bytes());
        }
    }
    let start = Instant::now();
    greet(&serving.visit().unwrap());
    let took = start.elapsed();
    drop(silent);
    took
}

/// Knocks, and does not join. What the server has answered.
fn knock_only(serving: &Serving) -> String {
    let knocks = stranger(serving);
    let release = env!("CARGO_PKG_VERSION");
    say(&knocks, format!("mapwire-knock {release}").as_bytes());
    let mut bytes = [0; 512];
    let flags = rustix::net::RecvFlags::empty();
    let (_, length) = rustix::net::recv(&knocks, &mut bytes[..], flags).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn a_process_that_takes_ranks_and_does_not_join_leaves_some_to_others() {
    let limits = ReceptionLimits { own_guests: 300, ..ReceptionLimits::default() };
    let serving = serve("hoard", limits);
    let answers: Vec<String> = (0..400).map(|_| knock_only(&serving)).collect();
    assert!(answers[0].starts_with("admitted\n"), "{}", answers[0]);
    assert!(answers[399].contains("of this process have not joined"), "{}", answers[399]);
    let mut child = serving.process("process_that_greets").spawn().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn another_release_is_refused_in_words() {
    let serving = serve("release", ReceptionLimits::default());
    let old = stranger(&serving);
    say(&old, b"mapwire-knock 9.9.9");
    let mut bytes = [0; 512];
    let (_, length) = rustix::net::recv(&old, &mut bytes[..], rustix::net::RecvFlags::empty()).unwrap();
    let text = String::from_utf8_lossy(&bytes[..length]);
    assert!(text.starts_with("refused\n") && text.contains("release"), "{text}");
}

#[test]
fn a_door_opens_once_and_a_name_that_nobody_serves_is_told() {
    let serving = serve("twice", ReceptionLimits::default());
    let error = Door::open(serving.name.clone()).unwrap_err();
    let MeetingError::Taken { holder, .. } = &error else {
        panic!("{error}");
    };
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    let nobody: DoorName = "test-nobody".parse().unwrap();
    let error = visit(&nobody, &[own_user()], config(), TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::Meeting(MeetingError::Nobody { .. })), "{error}");
    assert!("no door".parse::<DoorName>().is_err());
}

#[test]
fn guests_beyond_the_limit_are_refused_until_one_leaves() {
    let limits = ReceptionLimits { own_guests: 2, ..ReceptionLimits::default() };
    let serving = serve("limit", limits);
    let first = serving.visit().unwrap();
    let _second = serving.visit().unwrap();
    let error = serving.visit().unwrap_err().to_string();
    assert!(error.contains("2 clients there already"), "{error}");
    drop(first);
    serving.wait_until("one has left", |book| !book.parted.is_empty());
    greet(&serving.visit().unwrap());
}

#[test]
fn guests_of_another_user_have_a_job_of_their_own() {
    let Some(open) = for_another_user() else {
        return;
    };
    let serving = serve("user", ReceptionLimits::default());
    let node = serving.visit().unwrap();
    let mut process = serving.of_another_user(&open);
    let mut child = process.spawn().unwrap();
    assert!(child.wait().unwrap().success());
    greet(&node);
    let book = serving.server.book();
    let (job, rank, who) = book.guests[1];
    assert_eq!((job, rank, who.user, who.group), (2, 1, 65_534, 65_534));
}

/// As many visits as succeed, each of which takes a job where jobs have two ranks.
fn visit_until_refused(mut visit: impl FnMut() -> Result<Node, Error>) -> (Vec<Node>, String) {
    let mut nodes = Vec::new();
    loop {
        match visit() {
            Ok(node) => nodes.push(node),
            Err(error) => return (nodes, error.to_string()),
        }
    }
}

#[test]
#[ignore = "a process of other tests"]
fn process_that_takes_all_jobs() {
    let name: DoorName = std::env::var(DOOR).unwrap().parse().unwrap();
    let user = std::env::var(USER).unwrap().parse().unwrap();
    let (nodes, why) = visit_until_refused(|| visit(&name, &[user], config(), TIMEOUT).map(|visit| visit.node));
    println!("took {}: {why}", nodes.len());
    std::thread::sleep(Duration::from_secs(600));
}

const TWO_RANKS: ReceptionLimits = ReceptionLimits { ranks: 2, jobs: 16, own_guests: 4096, other_guests: 64 };

#[test]
fn whoever_takes_all_jobs_that_he_can_leaves_some_to_the_servers_user_and_to_others() {
    use std::os::unix::process::CommandExt;
    if own_user() != 0 {
        mapwire_testing::skip!("only root can start a process of another user");
        return;
    }
    let serving = serve("jobs", TWO_RANKS);
    let open = OpenFolder::new();
    let program = open.copy_of(std::env::current_exe().unwrap());
    let hoard = |user| {
        let mut process = serving.process_of(&program, "process_that_takes_all_jobs");
        process.uid(user).gid(user).spawn().unwrap()
    };
    // Half of eight, half of what is left, and so on.
    let mut hoards = Vec::new();
    for (user, jobs) in [(65_534, 4), (65_533, 2), (65_532, 1)] {
        let mut child = hoard(user);
        await_line(&mut child, &format!("took {jobs}: "));
        hoards.push(child);
    }
    let mut late = serving.process_of(&program, "process_that_greets");
    assert!(late.uid(65_531).gid(65_531).status().unwrap().success());
    let (own, why) = visit_until_refused(|| serving.visit());
    // Those that have gone may be there for a moment.
    assert!((8..=9).contains(&own.len()), "{}: {why}", own.len());
    for mut child in hoards {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_servers_own_clients_leave_some_jobs_to_others() {
    use std::os::unix::process::CommandExt;
    if own_user() != 0 {
        mapwire_testing::skip!("only root can start a process of another user");
        return;
    }
    let serving = serve("own", TWO_RANKS);
    let (own, why) = visit_until_refused(|| serving.visit());
    assert_eq!(own.len(), 14, "{why}");
    assert!(why.contains("14 are of user 0"), "{why}");
    let open = OpenFolder::new();
    let program = open.copy_of(std::env::current_exe().unwrap());
    let mut late = serving.process_of(&program, "process_that_greets");
    assert!(late.uid(65_534).gid(65_534).status().unwrap().success());
}

#[test]
fn a_server_may_keep_other_users_out() {
    let Some(open) = for_another_user() else {
        return;
    };
    let limits = ReceptionLimits { other_guests: 0, ..ReceptionLimits::default() };
    let serving = serve("keep", limits);
    let output = serving.of_another_user(&open).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("admits no clients of user 65534"), "{said}");
}

#[test]
fn guests_learn_that_the_server_has_ended() {
    let serving = serve("end", ReceptionLimits::default());
    let node = serving.visit().unwrap();
    greet(&node);
    drop(serving);
    let error = node.import(0, "other").start().unwrap_err();
    assert_eq!(error.kind(), mapwire::ErrorKind::Gone, "{error}");
}
