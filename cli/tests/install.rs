//! `make install` and `make uninstall`, of a build that this test makes up.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Place, need_programs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder as `make build` leaves it, but for the libraries, which hold nothing.
fn built(place: &Place) -> PathBuf {
    let release = place.folder.join("target/release");
    std::fs::create_dir_all(&release).unwrap();
    need_programs();
    let program = Path::new(env!("CARGO_BIN_EXE_mapwire"));
    for name in ["mapwire", "mapwire-bench", "mapwire-lab"] {
        std::fs::copy(program.with_file_name(name), release.join(name)).unwrap();
    }
    let programs = ["tsp", "sor", "is", "lu", "lu-nc", "radix", "tasks", "nbody"];
    for name in programs.into_iter().chain(["libmapwire_c.so", "libmapwire_far.so", "libmapwire_rpc_c.so"]) {
        std::fs::copy(program, release.join(name)).unwrap();
    }
    for name in ["libmapwire_c.a", "libmapwire_rpc_c.a"] {
        std::fs::write(release.join(name), "!<arch>\n").unwrap();
    }
    place.folder.join("target")
}

fn make(place: &Place, clone: &Path, goal: &str, variables: &[&str]) -> Output {
    let mut command = Command::new("make");
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
        command.env_remove(name);
    }
    let stage = place.folder.join("stage");
    command
        .arg("-C")
        .arg(clone)
        .args([goal, "PREFIX=/opt/mapwire"])
        .arg(format!("DESTDIR={}", stage.display()))
        .args(variables)
        .env("CARGO_TARGET_DIR", place.folder.join("target"))
        // As sudo gives it to root: no cargo of a user.
        .env("PATH", format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", place.folder.display()))
        .output()
        .unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap().is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn what_is_installed_is_stripped_has_its_licences_and_can_be_removed() {
    let place = Place::new();
    built(&place);
    let output = make(&place, &root(), "install", &["BUILD=no"]);
    assert!(output.status.success(), "{output:?}");
    let at = |name: &str| place.folder.join("stage/opt/mapwire").join(name);
    for name in [
        "bin/mapwire",
        "bin/mapwire-bench",
        "bin/mapwire-lab",
        "lib/mapwire/tsp",
        "lib/libmapwire.so.0",
        "share/man/man1/mapwire-run.1",
        "share/man/man1/mapwire-lab-study.1",
        "share/doc/mapwire/LICENSE-MIT",
        "share/doc/mapwire/LICENSE-APACHE",
        "lib/libmapwire_rpc.so.0",
        "share/man/man3/mapwire_rpc.3",
        "share/doc/mapwire/examples/c/first.c",
        "share/doc/mapwire/examples/rpc/calc.x",
        "share/doc/mapwire/examples/rust/messages.rs",
    ] {
        assert!(at(name).exists(), "{name}");
    }
    let bytes = |path: &Path| path.metadata().unwrap().len();
    let before = bytes(&place.folder.join("target/release/mapwire"));
    assert!(bytes(&at("bin/mapwire")) < before, "not stripped");
    let output = make(&place, &root(), "uninstall", &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files(&place.folder.join("stage")), Vec::<PathBuf>::new());
}

#[test]
fn under_sudo_the_user_builds() {
    if !rustix::process::geteuid().is_root() {
        mapwire_testing::skip!("only root installs for others");
        return;
    }
    let place = Place::new();
    built(&place);
    let owner = "nobody";
    let clone = place.folder.join("clone");
    std::fs::create_dir(&clone).unwrap();
    let copy = "cp -r --parents scripts Makefile Cargo.toml *.md LICENSE-* bindings/c bindings/rpc mapwire/examples";
    let text = format!("{copy} {0} && chown -R {owner} {0}", clone.display());
    let copied = Command::new("sh").args(["-c", &text]).current_dir(root()).status();
    assert!(copied.unwrap().success());
    let sudo = place.write("bin/sudo", "#!/bin/sh\necho \"$@\" >\"$0.log\"\n");
    std::fs::set_permissions(&sudo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = make(&place, &clone, "install", &[&format!("SUDO_USER={owner}")]);
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(place.folder.join("bin/sudo.log")).unwrap();
    assert!(log.contains(&format!("-u {owner} -H")) && log.contains("install.sh --build"), "{log}");
}
