//! How ranks start: what they find, and every mistake told before anything runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::Place;

#[test]
fn ranks_find_their_number_and_the_options_in_the_environment() {
    let place = Place::new();
    let text = "echo $MAPWIRE_RANK/$MAPWIRE_SIZE $RANK/$WORLD_SIZE/$LOCAL_RANK ${#MAPWIRE_JOB} \
                $MAPWIRE_WAIT $MAPWIRE_SHARED $MAPWIRE_VIEWS $MAPWIRE_TRANSLATION $MAPWIRE_FAULTS $MAPWIRE_PINNER $MAPWIRE_PIN_LIMIT $MAPWIRE_TIMEOUT";
    let options = [
        "--wait",
        "poll",
        "--shared",
        "64M",
        "--views",
        "8",
        "--translation",
        "hierarchical,ways=4,entries=1K",
        "--faults",
        "sigsegv",
        "--pinner",
        "mlock",
        "--pin-limit",
        "1M",
        "--timeout",
        "7",
    ];
    let args = [&["run", "-n", "2"], &options[..], &["--", "sh", "-c", text]].concat();
    let done = place.run(&args).code(0);
    let rest = "65 poll 67108864 8 hierarchical,entries=1K,ways=4 sigsegv mlock 1048576 7";
    assert_eq!(done.sorted(), [format!("[0] 0/2 0/2/0 {rest}"), format!("[1] 1/2 1/2/1 {rest}")]);
}

#[test]
fn a_provider_of_libfabric_is_told_to_take_small_buffers_unless_the_user_sets_one() {
    let place = Place::new();
    let text = "echo $FI_OFI_RXM_BUFFER_SIZE/$FI_OFI_RXM_EAGER_LIMIT/$FI_OFI_RXM_MSG_RX_SIZE";
    let told = |options: &[&str], set: &[(&str, &str)]| {
        let args = [&["run", "-n", "1"], options, &["--", "sh", "-c", text]].concat();
        let mut command = place.command(&args);
        command.envs(set.iter().copied());
        let done = crate::common::Running::of(command).wait().code(0);
        done.out().trim_start_matches("[0] ").trim().to_owned()
    };
    let tcp = ["--transport", "ofi:tcp"];
    assert_eq!(told(&tcp, &[]), "1024/16384/256");
    let by_variable = [("MAPWIRE_TRANSPORT", "ofi:tcp;ofi_rxm")];
    assert_eq!(told(&[], &by_variable), "1024/16384/256");
    assert_eq!(told(&tcp, &[("FI_OFI_RXM_EAGER_LIMIT", "9")]), "/9/");
    let given = [&tcp[..], &["-x", "FI_OFI_RXM_MSG_RX_SIZE=8"]].concat();
    assert_eq!(told(&given, &[]), "//8");
    // Verbs takes no limit beyond its buffers.
    for other in ["ofi:verbs", "ofi", "udp"] {
        assert_eq!(told(&["--transport", other], &[]), "//", "{other}");
    }
}

#[test]
fn ranks_keep_the_rest_of_the_environment_and_get_what_x_sets() {
    let place = Place::new();
    let text = "echo $HOME_OF_TEST $LEVEL $MAPWIRE_RANK";
    let mut command =
        place.command(&["run", "-n", "1", "-x", "LEVEL=3", "-x", "MAPWIRE_RANK=9", "--", "sh", "-c", text]);
    command.env("HOME_OF_TEST", "kept");
    let done = crate::common::Running::of(command).wait().code(0);
    assert_eq!(done.out(), "[0] kept 3 0\n");
    place.run(&["run", "-n", "1", "-x", "NEVER_SET_HERE", "--", "true"]).code(2).says("NEVER_SET_HERE");
}

#[test]
fn a_launcher_without_descriptors_names_the_limit_and_how_to_raise_it() {
    let place = Place::new();
    for limit in 5..20 {
        let text = format!("ulimit -n {limit}; exec \"$0\" run -n 2 -- true");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &text, env!("CARGO_BIN_EXE_mapwire")]).env("MARK", &place.mark);
        let done = crate::common::Running::of(command).wait();
        assert!(limit > 5 || done.code != 0, "5 descriptors are too few");
        if done.code != 0 {
            done.says(&format!("RLIMIT_NOFILE is {limit}")).says("`ulimit -n`");
        }
    }
}

#[test]
fn a_program_that_is_not_found_is_told_with_127() {
    let place = Place::new();
    place.run(&["run", "-n", "2", "--", "no-such-program"]).code(127).says("no folder of PATH");
    place.run(&["run", "-n", "2", "--", "./nope"]).code(127).says("./nope: program not found");
    place.write("here", "#!/bin/sh\n");
    place.run(&["run", "-n", "2", "--", "here"]).code(127).says("write ./here");
}

#[test]
fn a_program_that_may_not_be_executed_is_told_with_126() {
    let place = Place::new();
    place.write("script", "echo no\n");
    place.run(&["run", "-n", "2", "--", "./script"]).code(126).says("chmod +x ./script");
    place.run(&["run", "-n", "2", "--", "/tmp"]).code(126).says("is a folder");
    let broken = place.write("broken", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
    place.run(&["run", "-n", "2", "--", "./broken"]).code(126).says("cannot start rank 0");
    place.assert_empty();
}

#[test]
fn a_script_runs_in_the_folder_that_wdir_names() {
    let place = Place::new();
    let script = place.write("sub/script", "#!/bin/sh\necho $0 in $(basename $(pwd)) $1\n");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let done = place.run(&["run", "-n", "1", "--wdir", "sub", "--", "./script", "a b"]).code(0);
    assert_eq!(done.out(), "[0] ./script in sub a b\n");
    place.run(&["run", "-n", "1", "--wdir", "gone", "--", "true"]).code(126).says("--wdir gone");
    place.run(&["run", "-n", "1", "--wdir", "sub/script", "--", "true"]).code(126);
}

#[test]
fn a_number_of_ranks_that_makes_no_sense_is_refused() {
    let place = Place::new();
    place.run(&["run", "-n", "0", "--", "true"]).code(2).says("at least one rank");
    place.run(&["run", "-n", "-1", "--", "true"]).code(2).says("`-1` is not a number of ranks");
    place.run(&["run", "-n", "many", "--", "true"]).code(2).says("`many`");
    place.run(&["run", "-n", "1000000000000", "--", "true"]).code(2).says("at most 4096");
    place.run(&["run", "-n", "65536", "--", "true"]).code(2).says("at most 4096");
    place.run(&["run", "--", "true"]).code(2).says("Give -n N");
    place.run(&["run", "-n", "2"]).code(2);
}

#[test]
fn sixty_four_ranks_run_on_few_processors_with_a_small_descriptor_limit() {
    let place = Place::new();
    let mapwire = env!("CARGO_BIN_EXE_mapwire");
    let mut command = place.command(&[]);
    let text = format!("ulimit -Sn 64; exec {mapwire} run -n 64 -- sh -c 'echo $MAPWIRE_RANK; echo e >&2'");
    command = {
        let mut shell = std::process::Command::new("sh");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.args(["-c", &text]).current_dir(&place.folder).stdin(std::process::Stdio::null());
        shell
    };
    let done = crate::common::Running::of(command).wait().code(0);
    let mut wanted: Vec<String> = (0..64).map(|r| format!("[{r}] {r}")).collect();
    wanted.sort();
    assert_eq!(done.sorted(), wanted);
    assert_eq!(done.err().lines().count(), 64);
    place.assert_empty();
}

#[test]
fn ranks_are_bound_to_cores_in_turn_if_asked() {
    let place = Place::new();
    let text = "sed -n s/Cpus_allowed_list://p /proc/self/status";
    let done = place.run(&["run", "-n", "3", "--bind", "core", "--", "sh", "-c", text]).code(0);
    let allowed = std::thread::available_parallelism().unwrap().get();
    let cpus: Vec<String> = done.sorted().iter().map(|l| l.split_whitespace().nth(1).unwrap().to_owned()).collect();
    assert!(cpus.iter().all(|c| c.parse::<u32>().is_ok()), "{cpus:?}");
    assert_eq!(cpus[0] == cpus[2], allowed <= 2);
    assert_eq!(cpus[0] == cpus[1], allowed == 1);
}

#[test]
fn standard_input_goes_to_rank_0_only() {
    let place = Place::new();
    let file = place.write("input", "line 1\nline 2\n");
    let mut command = place.command(&["run", "-n", "2", "--", "cat"]);
    command.stdin(std::fs::File::open(file).unwrap());
    let done = crate::common::Running::of(command).wait().code(0);
    assert_eq!(done.out(), "[0] line 1\n[0] line 2\n");
}

#[test]
fn programs_that_come_with_the_command_are_found_beside_it_and_where_they_are_installed() {
    let place = Place::new();
    let command = place.write("bin/mapwire", "");
    std::fs::copy(env!("CARGO_BIN_EXE_mapwire"), &command).unwrap();
    for (program, text) in [("bin/beside", "built"), ("lib/mapwire/away", "installed")] {
        let path = place.write(program, &format!("#!/bin/sh\necho {text}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, text) in [("beside", "built"), ("away", "installed")] {
        let output = std::process::Command::new(&command)
            .args(["run", "-n", "1", "--no-tag", "--", name])
            .current_dir(&place.folder)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), text);
    }
    // What stands in PATH comes first.
    let path = place.write("other/beside", "#!/bin/sh\necho other\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new(&command)
        .args(["run", "-n", "1", "--no-tag", "--", "beside"])
        .env("PATH", place.folder.join("other"))
        .current_dir(&place.folder)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "other");
}

#[test]
fn no_file_is_written_through_a_link_of_another_user() {
    let place = Place::new();
    let victim = place.write("victim", "precious");
    std::fs::create_dir(place.folder.join("pages")).unwrap();
    let (link, page) = (place.folder.join("link"), place.folder.join("pages/mapwire-run.1"));
    for link in [&link, &page] {
        std::os::unix::fs::symlink(&victim, link).unwrap();
        if std::os::unix::fs::lchown(link, Some(54_321), None).is_err() {
            mapwire_testing::skip!("only root can make links of other users");
            return;
        }
    }
    let refuses = |args: &[&str], code, link: &Path| {
        let done = place.run(args).code(code);
        let named = format!("{} is a link of user 54321", link.display());
        assert!(done.err().contains(&named), "{args:?}: {}", done.err());
        assert!(!place.has("started"));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    };
    for option in ["--trace=link", "--capture=link", "--summary=link"] {
        let udp = ["run", "-n", "2", "--transport", "udp", option];
        refuses(&[&udp, &["--", "touch", "started"][..]].concat(), 1, &link);
    }
    refuses(&["man", "pages"], 1, &page);
}
