//! `mapwire far`: programs that are larger than what they get of the RAM, and what goes wrong before they start.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Done, Place, Running, eventually, json_rows};

/// Where the library must be, that cargo builds with the workspace. `false`, and a word of it: userfaultfd is refused here.
fn can_start(place: &Place) -> bool {
    let library = Path::new(env!("CARGO_BIN_EXE_mapwire")).with_file_name("libmapwire_far.so");
    assert!(library.exists(), "{library:?} is missing: cargo build -p mapwire-far");
    let done = far(place, &["--local", "8M", "--", "true"]);
    if done.err().contains("userfaultfd") {
        mapwire_testing::skip!("{}", done.err());
        return false;
    }
    done.code(0);
    true
}

fn far(place: &Place, args: &[&str]) -> Done {
    place.run(&[&["far"], args].concat())
}

/// Lines of numbers that follow no order.
fn numbers(lines: u64) -> String {
    let line = |at: u64| format!("{:016x}\n", at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..lines).map(line).collect()
}

#[test]
fn a_file_larger_than_the_limit_is_sorted_as_without_it() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let text = numbers(300_000);
    place.write("numbers", &text);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let line = ["sort", "-S", "30M", "--parallel=2", "-o", "sorted", "numbers"];
    let done = far(&place, &[&["--local", "6M", "--stats", "--disk", ".", "--"], &line[..]].concat());
    let done = done.code(0);
    let sorted = std::fs::read_to_string(place.folder.join("sorted")).unwrap();
    assert!(sorted.lines().eq(lines), "it is not sorted");
    // It did not fit: pages went, and came again.
    let err = done.err();
    let figure = |name: &str, at: usize| -> f64 {
        let line = err.lines().find(|line| line.trim_start().starts_with(name));
        let words = line.map(str::split_whitespace);
        words.and_then(|mut words| words.nth(at)?.parse().ok()).unwrap_or_else(|| panic!("no {name}: {err}"))
    };
    assert!(figure("memory", 1) <= 7.0, "{}", done.err());
    assert!(figure("pages out", 2) > 1_000.0, "{}", done.err());
    assert!(figure("pages in", 2) > 500.0, "{}", done.err());
}

#[test]
fn the_code_of_the_program_is_passed_on_and_its_name_and_arguments_are_as_given() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let done = far(&place, &["--local", "8M", "--", "sh", "-c", "echo $0 $1; exit 7", "a b", "-- c"]);
    assert_eq!(done.code(7).out(), "a b -- c\n");
}

#[test]
fn limits_that_make_no_sense_are_told_with_their_values() {
    let place = Place::new();
    for (limit, said) in [
        ("0", "--local 0: too little; give at least 1M"),
        ("4095", "--local 4095: too little; give at least 1M"),
        ("200T", "--local 200T: beyond the address space"),
        ("99999999T", "more than 64 bits can hold"),
        ("much", "--local: invalid size `much`"),
        ("-1", "-1"),
    ] {
        let local = format!("--local={limit}");
        far(&place, &[&local, "--", "true"]).code(2).says(said);
    }
}

#[test]
fn what_is_missing_is_named() {
    let place = Place::new();
    let with = |args: &[&str]| far(&place, &[&["--local", "8M"], args].concat());
    with(&["--", "no-such-program"]).code(127).says("no-such-program: program not found");
    with(&["--", "/tmp"]).code(126).says("/tmp: is a folder");
    with(&["--disk", "/no/such/folder", "--", "true"])
        .code(2)
        .says("--disk /no/such/folder: cannot keep a file there: No such file or directory");
    with(&[]).code(2).says("<PROGRAM>");
    far(&place, &["--", "true"]).code(2).says("--local <SIZE>");
}

#[test]
fn a_program_that_takes_no_library_is_not_started_without_far_memory() {
    let place = Place::new();
    let source = place.write("static.c", "int main(void) { return 0; }\n");
    let program = place.folder.join("static");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        mapwire_testing::skip!("no static program can be built here");
        return;
    }
    far(&place, &["--local", "8M", "--", program.to_str().unwrap()])
        .code(126)
        .says("is statically linked, so that nothing can be preloaded");
}

#[test]
fn a_disk_without_files_that_have_no_name_is_told_by_the_program_before_it_runs() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    far(&place, &["--local", "8M", "--disk", "/proc", "--", "echo", "ran"])
        .code(126)
        .says("cannot make a file in /proc")
        .says("--disk");
}

#[test]
fn private_mappings_of_files_are_far_where_that_is_asked_for() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let text = numbers(500_000);
    place.write("numbers", &text);
    let source = place.write(
        "sum.c",
        "#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n\
         int main(int count, char **arguments) {\n\
             size_t bytes = atol(arguments[2]), sum = 0;\n\
             int rights = PROT_READ | PROT_WRITE;\n\
             unsigned char *file = mmap(0, bytes, rights, MAP_PRIVATE, open(arguments[1], O_RDONLY), 0);\n\
             if (file == MAP_FAILED) return 1;\n\
             for (size_t at = 0; at < bytes; at += 1 << 20) file[at]++;\n\
             for (size_t round = 0; round < 2; round++)\n\
                 for (size_t at = 0; at < bytes; at++) sum += file[at];\n\
             printf(\"%zu\\n\", sum);\n\
         }\n",
    );
    let program = place.folder.join("sum");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-O1", "-o"]).arg(&program).arg(source);
    assert!(built.status().unwrap().success());
    let bytes = text.len().to_string();
    let program = ["--stats", "--", program.to_str().unwrap(), "numbers", &bytes];
    let sum: usize = text.bytes().map(usize::from).sum();
    let changes = text.len().div_ceil(1 << 20);
    let expected = format!("{}\n", 2 * (sum + changes));
    let local = ["--local", "4M", "--disk", "."].as_slice();
    let without = far(&place, &[local, &program[..]].concat()).code(0);
    assert_eq!(without.out(), expected);
    assert!(!without.err().contains("of files"), "{}", without.err());
    let with = far(&place, &[local, &["--files"], &program[..]].concat()).code(0);
    assert_eq!(with.out(), expected);
    let err = with.err();
    let pages: usize = {
        let (before, _) = err.split_once(" of files").unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // Twice the file, since it does not fit.
    assert!(pages > text.len() * 3 / 2 / 4096, "{err}");
    let after = std::fs::read_to_string(place.folder.join("numbers")).unwrap();
    assert!(after == text, "the file was changed");
}

/// Starts a `sort` under far memory that has read `text`, and waits for more.
fn start_sort(place: &Place, text: &str) -> (std::io::PipeWriter, Running) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = place.command(&["far", "--local", "4M", "--", "sort", "-S", "64M"]);
    command.stdin(Stdio::from(reader));
    let running = Running::of(command);
    writer.write_all(text.as_bytes()).unwrap();
    (writer, running)
}

#[test]
fn the_figures_of_a_program_are_read_while_it_runs() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (input, running) = start_sort(&place, &numbers(150_000));
    let pid = running.pid().to_string();
    let mut rows = Vec::new();
    eventually("pages were stored", || {
        rows = json_rows(&place.run(&["stats", &pid, "--json"]));
        rows.len() == 1 && rows[0]["disk_bytes"].as_u64() > Some(1 << 20)
    });
    let row = &rows[0];
    let figure = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!(row["program"], "sort");
    assert_eq!(figure("pid"), running.pid() as u64);
    assert_eq!((figure("limit_bytes"), figure("remote_bytes")), (4 << 20, 0));
    assert!(figure("resident_bytes") <= 5 << 20, "{row}");
    assert!(figure("stored_pages") * 4096 >= figure("disk_bytes"), "{row}");
    assert!(figure("faults") >= figure("faults_new") && figure("faults_new") > 10, "{row}");
    let latencies = ["p50", "p99", "p999", "max"].map(|it| figure(&format!("fault_{it}_ns")));
    assert!(latencies.is_sorted() && latencies[0] > 0, "{row}");
    // It reads what it sorts once more.
    drop(input);
    let mut fetched = 0;
    eventually("pages are fetched, or all is done", || {
        let done = place.run(&["stats", &pid, "--json"]);
        if done.code == 0 {
            fetched = json_rows(&done)[0]["fetched_pages"].as_u64().unwrap();
        }
        fetched > 0 || done.code != 0
    });
    assert!(fetched > 0);
    assert_eq!(running.wait().code(0).out().lines().count(), 150_000);
}

#[test]
fn figures_are_watched_until_the_program_ends() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (input, running) = start_sort(&place, &numbers(100_000));
    let pid = running.pid().to_string();
    eventually("the program has far memory", || place.run(&["stats", &pid]).code == 0);
    let text = place.run(&["stats", &pid]).code(0).out();
    assert!(text.starts_with(&format!("sort, process {pid}\n  memory ")), "{text}");
    assert!(text.contains("hit ratio") && text.contains("p99.9"), "{text}");
    let mut watch = place.command(&["stats", &pid, "--watch"]);
    let watched = place.folder.join("watched");
    watch.stdout(std::fs::File::create(&watched).unwrap());
    let mut watch = watch.spawn().unwrap();
    let text = || std::fs::read_to_string(&watched).unwrap();
    eventually("two lines of figures below their names", || text().lines().count() >= 3);
    drop(input);
    running.wait().code(0);
    assert!(watch.wait().unwrap().success());
    let text = text();
    assert!(text.lines().next().unwrap().contains("faults/s"), "{text}");
}

#[test]
fn a_process_without_figures_is_told_why() {
    let place = Place::new();
    let me = std::process::id().to_string();
    let stats = |pid: &str| place.run(&["stats", pid]);
    let says = format!("process {me} has no far memory; start it by `mapwire far");
    stats(&me).code(1).says(&says);
    let says = "no process has the number 4294967295";
    stats("4294967295").code(1).says(says);
    stats("sort").code(2).says("invalid value 'sort'");
}

#[test]
fn a_process_of_another_user_is_not_read() {
    if !rustix::process::geteuid().is_root() {
        mapwire_testing::skip!("only root can start a process of another user");
        return;
    }
    let open = mapwire_testing::OpenFolder::new();
    let mut command = Command::new(open.copy_of(env!("CARGO_BIN_EXE_mapwire")));
    let me = std::process::id().to_string();
    command.args(["stats", &me]).current_dir("/");
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    let done = command.output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(err.contains("is not yours to look at"), "{err}");
}

#[test]
fn donors_are_named_with_and_without_an_equals_sign() {
    let place = Place::new();
    place.write("secret", &"0".repeat(64));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.folder.join("secret"), private).unwrap();
    for donors in [&["--donors", "mapwire://127.0.0.1:9"][..], &["--donors=mapwire://127.0.0.1:9"]] {
        let rest = ["--secret-file", "secret", "--", "true"];
        far(&place, &[&["--local", "8M"], donors, &rest].concat()).code(1).says("127.0.0.1:9");
    }
    // Without a value it is a server on this host, and what follows is an option.
    let rest = ["--donors", "--copies", "3", "--", "true"];
    far(&place, &[&["--local", "8M"], &rest[..]].concat()).code(2).says("--copies");
}

#[test]
fn figures_of_a_process_that_moved_nothing_are_not_printed() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let script = "/bin/true; sort -S 30M --parallel=1 numbers > sorted; exit 0";
    place.write("numbers", &numbers(300_000));
    let done = far(&place, &["--local", "6M", "--stats", "--disk", ".", "--", "sh", "-c", script]);
    let err = done.code(0).err();
    let lines: Vec<&str> = err.lines().filter(|line| line.contains(", process ")).collect();
    assert!(lines.len() == 2, "{err}");
    assert!(err.contains("mapwire far: sort, process ") && err.contains(" at its peak) of at most 6.0"), "{err}");
    let shell = lines.iter().find(|line| !line.contains(" sort,")).unwrap();
    assert!(shell.contains(": nothing left the RAM, where 0."), "{err}");
    let latency = err.lines().find(|line| line.contains("latency")).unwrap();
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).count();
    assert!(latency.split(", ").all(|part| digits(part.split_whitespace().last().unwrap()) <= 5), "{err}");
}

#[test]
fn a_user_without_userfaultfd_is_told_what_root_can_do() {
    let place = Place::new();
    let allowed = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if allowed.is_ok_and(|text| text.trim() == "1") {
        mapwire_testing::skip!("userfaultfd is allowed to all");
        return;
    }
    let copy = place.folder.join("bin");
    std::fs::create_dir(&copy).unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_mapwire"));
    for name in ["mapwire", "libmapwire_far.so"] {
        std::fs::copy(command.with_file_name(name), copy.join(name)).unwrap();
    }
    let done = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(copy.join("mapwire"))
        .args(["far", "--local", "8M", "--", "true"])
        .current_dir("/")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(126), "{err}");
    assert!(err.contains("run as root, or have root run `sysctl vm.unprivileged_userfaultfd=1`"), "{err}");
    // Every option that is named is one of this command.
    let help = far(&place, &["--help"]).code(0).out();
    for word in err.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(help.contains(word.trim_matches(|it: char| it != '-' && !it.is_alphanumeric())), "{word}: {err}");
    }
}
