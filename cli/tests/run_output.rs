//! What ranks print, and how it comes out.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::Place;

#[test]
fn lines_of_all_ranks_are_tagged_whole_and_in_order() {
    let place = Place::new();
    let done = place.sh(4, "seq -f \"$MAPWIRE_RANK %08g abcdefghijklmnopqrstuvwxyz\" 20000").code(0);
    let mut next = [1_u32; 4];
    for line in done.out().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let rank: usize = words[1].parse().unwrap();
        assert_eq!(words[0], format!("[{rank}]"));
        assert_eq!(words[2], format!("{:08}", next[rank]));
        assert_eq!(words[3], "abcdefghijklmnopqrstuvwxyz");
        next[rank] += 1;
    }
    assert_eq!(next, [20001; 4]);
}

#[test]
fn standard_error_comes_out_on_standard_error() {
    let place = Place::new();
    let done = place.sh(2, "echo out; echo err >&2").code(0);
    assert_eq!(done.sorted(), ["[0] out", "[1] out"]);
    let mut errors: Vec<String> = done.err().lines().map(str::to_owned).collect();
    errors.sort();
    assert_eq!(errors, ["[0] err", "[1] err"]);
}

#[test]
fn a_line_that_comes_in_pieces_comes_out_whole() {
    let place = Place::new();
    let text = "for i in 1 2 3 4 5; do printf $MAPWIRE_RANK; sleep 0.02; done; echo .";
    let done = place.sh(3, text).code(0);
    assert_eq!(done.sorted(), ["[0] 00000.", "[1] 11111.", "[2] 22222."]);
}

#[test]
fn an_unfinished_last_line_is_not_lost() {
    let place = Place::new();
    let done = place.sh(2, "printf 'a\\nb'").code(0);
    assert_eq!(done.sorted(), ["[0] a", "[0] b", "[1] a", "[1] b"]);
    let raw = place.run(&["run", "-n", "1", "--no-tag", "--", "printf", "a\\nb"]).code(0);
    assert_eq!(raw.stdout, b"a\nb");
}

#[test]
fn bytes_that_are_no_text_go_through_unchanged() {
    let place = Place::new();
    let done = place.run(&["run", "-n", "1", "--", "printf", "\\000\\377\\r\\n"]).code(0);
    assert_eq!(done.stdout, b"[0] \x00\xff\r\n");
}

#[test]
fn a_failing_ranks_last_words_come_before_what_is_said_of_it() {
    let place = Place::new();
    let done = place.sh(1, "echo last words >&2; exit 3").code(3);
    let lines: Vec<String> = done.err().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "[0] last words");
    assert!(lines[1].starts_with("mapwire: rank 0 (process "), "{lines:?}");
    assert!(lines[1].ends_with("exited with code 3"), "{lines:?}");
}

#[test]
fn a_job_whose_reader_has_gone_ends() {
    let place = Place::new();
    let mut command = place.command(&["run", "-n", "2", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("] y"));
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(141));
    place.assert_empty();
}

#[test]
fn a_reader_that_pauses_holds_ranks_up_but_not_the_launcher() {
    let place = Place::new();
    let mut command = place.command(&["run", "-n", "2", "--", "yes"]);
    // Nobody reads this pipe.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id() as i32;
    // Ranks fill what is between them and the reader; then all wait.
    let waits = |pid: &i32| crate::common::state(*pid) == Some('S');
    let writes = |pid: &&i32| crate::common::written(**pid) > 65_536;
    crate::common::eventually("ranks are held up", || {
        let all = place.processes();
        all.iter().filter(writes).count() >= 2 && all.iter().all(waits)
    });
    crate::common::signal(pid, rustix::process::Signal::TERM);
    // Once more: do not even wait for the reader.
    crate::common::eventually("it ends", || {
        crate::common::signal(pid, rustix::process::Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(120));
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(143));
    place.assert_empty();
}

#[test]
fn lines_that_a_rank_printed_are_not_lost_when_another_fails() {
    let place = Place::new();
    // awk keeps what it prints to a pipe until it ends, and here it never does.
    let text = r#"if [ $MAPWIRE_RANK = 1 ]; then while ! [ -e up ]; do sleep 0.01; done; exit 3; fi
        exec awk 'BEGIN { print "early"; printf "" > "up"; close("up"); while (1) x++ }'"#;
    let done = place.sh(2, text).code(3);
    assert_eq!(done.out(), "[0] early\n");
}

#[test]
fn ranks_print_to_a_terminal_only_where_lines_are_tagged_or_it_is_asked_for() {
    let place = Place::new();
    let text = "test -t 1 && echo terminal $TERM; test -t 2 && echo terminal 2; exit 0";
    let kind = |options: &[&str]| {
        let args = [&["run", "-n", "1"], options, &["--", "sh", "-c", text]].concat();
        place.run(&args).code(0).out()
    };
    assert_eq!(kind(&[]), "[0] terminal dumb\n");
    assert_eq!(kind(&["-x", "TERM=xterm"]), "[0] terminal xterm\n");
    assert_eq!(kind(&["--stdout", "pipe"]), "");
    assert_eq!(kind(&["--no-tag"]), "");
    assert_eq!(kind(&["--no-tag", "--stdout", "pty"]), "terminal dumb\n");
}

#[test]
fn all_bytes_pass_a_terminal_unchanged() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    std::fs::write(place.folder.join("bytes"), &all).unwrap();
    for stdout in ["pty", "pipe"] {
        let done = place.run(&["run", "-n", "1", "--no-tag", "--stdout", stdout, "--", "cat", "bytes"]);
        assert!(done.code(0).stdout == all, "{stdout}");
    }
}

/// Runs the command where `/dev` is empty; `None`, and says so, where that is not possible.
fn where_dev_is_empty(place: &Place, arguments: &str) -> Option<std::process::Output> {
    let mapwire = env!("CARGO_BIN_EXE_mapwire");
    let text = format!("mount -t tmpfs none /dev || exit 77; exec {mapwire} {arguments}");
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &text])
        .current_dir(&place.folder)
        .output();
    match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare:") => Some(output),
        other => {
            mapwire_testing::skip!("no mount namespace here: {other:?}");
            None
        }
    }
}

#[test]
fn where_dev_is_empty_jobs_run_and_print_to_pipes() {
    let run = "run -n 2 -- sh -c 'cat; test -t 1 || echo pipe'";
    let Some(output) = where_dev_is_empty(&Place::new(), run) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] pipe", "[1] pipe"]);
}

#[test]
fn where_dev_is_empty_doctor_finds_that_jobs_run() {
    let Some(output) = where_dev_is_empty(&Place::new(), "doctor") else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.lines().any(|line| line.starts_with("ok    job  ")), "{said}");
}
