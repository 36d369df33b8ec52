//! How jobs end: first failure, signals, stopped and killed ranks, a killed launcher.

use std::time::Duration;

use crate::common::{Place, children, eventually, signal, state};
use rustix::process::Signal;

/// A rank with a child and a grandchild, which says in a file that it runs.
const TREE: &str = "sleep 1000 & (sleep 1000 & wait) & touch up$MAPWIRE_RANK; wait";

fn tree_is_up(place: &Place, ranks: u32) {
    eventually("all ranks run", || (0..ranks).all(|r| place.has(&format!("up{r}"))));
}

#[test]
fn exit_codes_are_passed_on() {
    let place = Place::new();
    place.sh(3, "exit 0").code(0);
    place.sh(1, "exit 3").code(3);
    place.sh(2, "kill -9 $$").code(137).says("was killed by SIGKILL");
    place.sh(2, "kill -SEGV $$").code(139).says("was killed by SIGSEGV");
    place.sh(1, "exit 255").code(255);
}

#[test]
fn a_job_ends_also_where_who_started_it_ignores_the_end_of_children() {
    let place = Place::new();
    let mut command = std::process::Command::new("env");
    let ranks = ["run", "-n", "2", "--", "sh", "-c", "exit 3"];
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_mapwire")]).args(ranks).env("MARK", &place.mark);
    crate::common::Running::of(command).wait().code(3);
    place.assert_empty();
}

#[test]
fn the_first_failure_ends_all_ranks_and_their_children() {
    let place = Place::new();
    let text = format!("if [ $MAPWIRE_RANK = 1 ]; then sleep 0.1; exit 9; fi; {TREE}");
    let done = place.sh(3, &text).code(9);
    place.assert_empty();
    let done = done.says("rank 1 (process ").says("exited with code 9; ending the other 2 ranks");
    assert_eq!(done.err().lines().count(), 1, "ranks that were ended did not fail: {}", done.err());
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed_after_a_while() {
    let place = Place::new();
    let text = "if [ $MAPWIRE_RANK = 1 ]; then while ! [ -e up ]; do sleep 0.01; done; exit 4; fi; \
                trap '' TERM; touch up; while :; do sleep 1000; done";
    let done = place.sh(2, text).code(4).says("rank 0 did not end within 3 s of SIGTERM");
    assert!(done.took >= Duration::from_secs(3));
    place.assert_empty();
}

#[test]
fn ctrl_c_ends_all_ranks_and_leaves_nothing() {
    let place = Place::new();
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let job = place.start_sh(3, TREE);
        tree_is_up(&place, 3);
        job.signal(which);
        job.wait().code(code);
        place.assert_empty();
        (0..3).for_each(|r| std::fs::remove_file(place.folder.join(format!("up{r}"))).unwrap());
    }
}

#[test]
fn a_second_ctrl_c_kills_at_once() {
    let place = Place::new();
    let job = place.start_sh(
        2,
        "trap 'touch told$MAPWIRE_RANK' TERM INT; touch up$MAPWIRE_RANK; while :; do sleep 1000 & wait; done",
    );
    tree_is_up(&place, 2);
    job.signal(Signal::INT);
    // Two that come at once are one.
    eventually("the first is passed on", || place.has("told0") && place.has("told1"));
    eventually("the second ends it", || {
        job.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(100));
        matches!(crate::common::state(job.pid()), None | Some('Z'))
    });
    let done = job.wait().code(130);
    // Said when ranks are killed because the grace is over.
    assert!(!done.err().contains("did not end"), "{}", done.err());
    place.assert_empty();
}

#[test]
fn a_process_that_leaves_its_group_is_ended_all_the_same() {
    let place = Place::new();
    place.sh(2, "setsid sleep 1000 & setsid sh -c 'sleep 1000 & exit' & sleep 0.1; exit 0").code(0);
    place.assert_empty();
    place.sh(2, "setsid sleep 1000 >/dev/null 2>&1 & sleep 0.1; exit 6").code(6);
    place.assert_empty();
}

/// A rank that leaves its group for the launcher's, ignores what asks it to end, and has a grandchild that is nobody's child and in
/// a session of its own.
#[test]
#[ignore = "a rank of the tests below"]
fn body_leaves_its_group() {
    use rustix::process::{getpgid, getppid, setpgid};
    setpgid(None, Some(getpgid(getppid()).unwrap())).unwrap();
    let text = "trap '' TERM INT; setsid sh -c 'sleep 1000 & exit' & exit";
    let mut child = std::process::Command::new("sh").args(["-c", text]).spawn().unwrap();
    child.wait().unwrap();
    std::fs::write(format!("up{}", std::env::var("MAPWIRE_RANK").unwrap()), "").unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn start_leavers(place: &Place) -> crate::common::Running {
    let rank = crate::common::as_rank("run_ending::body_leaves_its_group");
    let mut args = vec!["run", "-n", "2", "--"];
    args.extend(rank.iter().map(String::as_str));
    let job = place.start(&args);
    tree_is_up(place, 2);
    job
}

#[test]
fn ranks_that_leave_their_groups_are_ended_by_ctrl_c_at_once() {
    let place = Place::new();
    let job = start_leavers(&place);
    job.signal(Signal::INT);
    let done = job.wait().code(130);
    // Said when ranks are killed because the grace is over.
    assert!(!done.err().contains("did not end"), "{}", done.err());
    place.assert_empty();
}

#[test]
fn ranks_that_leave_their_groups_are_ended_when_the_keeper_is_killed() {
    let place = Place::new();
    let job = start_leavers(&place);
    let keeper = job.pid();
    job.signal(Signal::KILL);
    job.wait().code(-9);
    eventually("the launcher has cleaned up", || place.processes().is_empty());
    eventually("no control group is left", || !has_group(keeper));
}

#[test]
fn ranks_that_leave_their_groups_are_ended_when_the_launcher_is_killed() {
    let place = Place::new();
    let job = start_leavers(&place);
    let keeper = job.pid();
    signal(job.launcher(), Signal::KILL);
    job.wait().code(137);
    place.assert_empty();
    assert!(!has_group(keeper));
}

#[test]
fn a_rank_that_stops_leaves_no_process_that_forks_and_ends_over_and_over() {
    let place = Place::new();
    let text = "step() { step & exit; }; step & touch up$MAPWIRE_RANK; sleep 0.2; exit 3";
    let job = place.start_sh(1, text);
    let keeper = job.pid();
    job.wait().code(3);
    place.assert_empty();
    assert!(!has_group(keeper));
}

#[test]
fn where_no_control_group_can_be_made_descendants_are_found_and_ended() {
    let place = Place::new();
    let text = "cat /proc/self/cgroup; step() { step & exit; }; step & setsid sh -c 'sleep 1000 & exit' & \
                sleep 0.2; exit 3";
    let args = ["run", "-n", "2", "--", "sh", "-c", text];
    let open = mapwire_testing::OpenFolder::new();
    let mut command = place.command(&args);
    if rustix::process::geteuid().is_root() {
        // Root may make groups; this user may not.
        command = place.command_of(&open.copy_of(env!("CARGO_BIN_EXE_mapwire")), &args);
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        command.current_dir(open.path());
    }
    let done = crate::common::Running::of(command).wait().code(3);
    if done.out().contains("/mapwire-") {
        mapwire_testing::skip!("this user may make control groups");
    }
    place.assert_empty();
}

/// Whether the control group of the job with this keeper is there.
fn has_group(keeper: i32) -> bool {
    groups_here().contains(&format!("mapwire-{keeper}-{}", namespace()))
}

/// The names of the groups of version 2 below this process's.
fn groups_here() -> Vec<String> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let folders = mounts.iter().map(|it| std::path::Path::new(it).join(own));
    let entries = folders.filter_map(|folder| std::fs::read_dir(folder).ok());
    let names = entries.flat_map(|entries| entries.flatten().map(|entry| entry.file_name()));
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// The number of this process's namespace of process numbers.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let digits = |c: &char| c.is_ascii_digit();
    link.to_str().unwrap().chars().filter(digits).collect()
}

/// Ranks of which each has a child in a session of its own.
const LEAVER: &str = "setsid sh -c 'touch up$MAPWIRE_RANK; exec sleep 1000' & wait";

/// Kills processes at the same time, as far as can be told from outside.
fn kill_together(processes: &[i32]) {
    for stop_or_kill in [Signal::STOP, Signal::KILL] {
        processes.iter().for_each(|it| signal(*it, stop_or_kill));
    }
}

#[test]
fn where_keeper_and_launcher_are_killed_together_the_group_ends_with_all_that_is_in_it() {
    let place = Place::new();
    let job = place.start_sh(2, LEAVER);
    tree_is_up(&place, 2);
    let keeper = job.pid();
    if !has_group(keeper) {
        mapwire_testing::skip!("no control group can be made here");
        return;
    }
    kill_together(&[keeper, job.launcher()]);
    job.wait().code(-9);
    eventually("nothing is left", || place.processes().is_empty() && !has_group(keeper));
}

#[test]
fn a_group_that_nobody_could_remove_goes_with_the_next_job() {
    let place = Place::new();
    let job = place.start_sh(1, "touch up0; exec sleep 1000");
    tree_is_up(&place, 1);
    let keeper = job.pid();
    if !has_group(keeper) {
        mapwire_testing::skip!("no control group can be made here");
        return;
    }
    // The rank may be faster than the sweeper.
    eventually("launcher and sweeper", || children(keeper).len() == 2);
    let mut all = children(keeper);
    all.push(keeper);
    kill_together(&all);
    job.wait().code(-9);
    eventually("the rank has died", || place.processes().is_empty());
    // By this one, or by one that another test has started.
    place.sh(1, "true").code(0);
    assert!(!has_group(keeper));
}

#[test]
fn what_a_rank_leaves_behind_may_finish_its_output() {
    let place = Place::new();
    let done = place.sh(1, "(sleep 0.1; echo late) & exit 0").code(0);
    assert_eq!(done.out(), "[0] late\n");
}

#[test]
fn a_killed_keeper_leaves_nothing() {
    let place = Place::new();
    let job = place.start_sh(3, TREE);
    tree_is_up(&place, 3);
    job.signal(Signal::KILL);
    job.wait().code(-9);
    eventually("the launcher has cleaned up", || place.processes().is_empty());
}

#[test]
fn a_killed_keeper_leaves_no_files_of_a_trace() {
    let place = Place::new();
    let text = "touch up$MAPWIRE_RANK; sleep 1000 & wait";
    let args = ["run", "-n", "2", "--trace", "t.mwt", "--", "sh", "-c", text];
    let job = place.start(&args);
    tree_is_up(&place, 2);
    let hidden = || {
        let names = std::fs::read_dir(&place.folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("t.mwt")).count()
    };
    assert_eq!(hidden(), 1);
    job.signal(Signal::KILL);
    job.wait().code(-9);
    eventually("the launcher has cleaned up", || place.processes().is_empty() && hidden() == 0);
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let place = Place::new();
    let job = place.start_sh(3, TREE);
    tree_is_up(&place, 3);
    signal(job.launcher(), Signal::KILL);
    job.wait().code(137).says("the launcher was killed by SIGKILL");
    place.assert_empty();
}

#[test]
fn ranks_die_even_if_keeper_and_launcher_are_killed_together() {
    let place = Place::new();
    let job = place.start(&["run", "-n", "3", "--", "sh", "-c", "touch up$MAPWIRE_RANK; exec sleep 1000"]);
    tree_is_up(&place, 3);
    let launcher = job.launcher();
    job.signal(Signal::STOP);
    signal(launcher, Signal::STOP);
    job.signal(Signal::KILL);
    signal(launcher, Signal::KILL);
    job.wait().code(-9);
    eventually("ranks die with the launcher", || place.processes().is_empty());
}

#[test]
fn a_rank_killed_from_outside_ends_the_job_with_its_signal() {
    let place = Place::new();
    let job = place.start_sh(2, TREE);
    tree_is_up(&place, 2);
    signal(children(job.launcher())[1], Signal::KILL);
    job.wait().code(137).says("was killed by SIGKILL; ending the other rank");
    place.assert_empty();
}

#[test]
fn a_stopped_rank_is_named_and_ends_the_job_after_its_grace() {
    let place = Place::new();
    let text = "if [ $MAPWIRE_RANK = 1 ]; then kill -STOP $$; fi; sleep 1000";
    let done = place.run(&["run", "-n", "2", "--stop-grace", "0.3", "--", "sh", "-c", text]);
    let done = done.code(147).says("was stopped by SIGSTOP; the job ends in 0.3 s");
    done.says("rank 1 is stopped for more than 0.3 s");
    place.assert_empty();
}

#[test]
fn a_stopped_rank_that_continues_is_forgiven() {
    let place = Place::new();
    let text = "if [ $MAPWIRE_RANK = 1 ]; then (sleep 0.1; kill -CONT $$) & kill -STOP $$; touch on; fi; while ! [ -e on ]; do sleep 0.01; done";
    let job = place.start(&["run", "-n", "2", "--stop-grace", "30", "--", "sh", "-c", text]);
    job.wait().code(0).says("was stopped by SIGSTOP");
    place.assert_empty();
}

#[test]
fn ctrl_z_stops_the_ranks_and_fg_continues_them() {
    let place = Place::new();
    // No loop of short commands: a shell that waits in vfork for a stopped child is not itself stopped.
    let text = "touch up$MAPWIRE_RANK; exec sleep 3";
    let mut command = place.command(&["run", "-n", "2", "--stop-grace", "0.1", "--", "sh", "-c", text]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let job = crate::common::Running::of(command);
    tree_is_up(&place, 2);
    let launcher = job.launcher();
    let ranks = children(launcher);
    // As the terminal does: to the whole foreground group.
    let group = rustix::process::Pid::from_raw(job.pid()).unwrap();
    rustix::process::kill_process_group(group, Signal::TSTP).unwrap();
    eventually("all are stopped", || ranks.iter().chain([&launcher]).all(|pid| state(*pid) == Some('T')));
    std::thread::sleep(Duration::from_millis(200));
    rustix::process::kill_process_group(group, Signal::CONT).unwrap();
    let done = job.wait().code(0);
    assert_eq!(done.err(), "", "ranks that the launcher stopped are no news");
}
