//! The files that `make install` installs, and the names that the library takes over.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{clean, make, run};

/// The functions of libtirpc that stand in this library too.
const FUNCTIONS: [&str; 16] = [
    "clnt_create",
    "clnt_create_timed",
    "clnt_create_vers",
    "clnt_create_vers_timed",
    "clnt_tp_create",
    "clnt_tp_create_timed",
    "rpc_broadcast",
    "rpc_broadcast_exp",
    "rpc_call",
    "rpc_reg",
    "svc_create",
    "svc_reg",
    "svc_register",
    "svc_tp_create",
    "svc_unreg",
    "svc_unregister",
];

#[test]
fn an_installation_has_libraries_pkg_config_and_manual_and_can_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        ["PREFIX=/opt/mapwire", "LIBDIR=/opt/mapwire/lib64", &format!("DESTDIR={}", folder.path().display())];
    run(&mut make("install", &variables));
    let at = |name: &str| folder.path().join("opt/mapwire").join(name);
    let link = |name: &str| std::fs::read_link(at(name)).unwrap();
    assert_eq!(link("lib64/libmapwire_rpc.so"), Path::new("libmapwire_rpc.so.0"));
    let real = format!("libmapwire_rpc.so.{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(link("lib64/libmapwire_rpc.so.0"), Path::new(&real));
    assert!(at("lib64/libmapwire_rpc.a").exists());
    let page = std::fs::read_to_string(at("share/man/man3/mapwire_rpc.3")).unwrap();
    for variable in ["MAPWIRE_RPC", "MAPWIRE_RPC_RECORD", "MAPWIRE_WAIT"] {
        assert!(page.contains(&format!(".It Ev {variable}\n")), "{variable}");
    }
    let text = std::fs::read_to_string(at("lib64/pkgconfig/mapwire_rpc.pc")).unwrap();
    assert!(text.contains("prefix=/opt/mapwire\n") && text.contains("libdir=${prefix}/lib64\n"), "{text}");
    assert!(!text.contains('@'), "{text}");

    let listed =
        run(clean("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(at("lib64/libmapwire_rpc.so")));
    let symbols: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(symbols, BTreeSet::from(FUNCTIONS));

    run(&mut make("uninstall", &variables));
    assert!(!at("lib64/libmapwire_rpc.so.0").exists());
    assert!(!at("share/man/man3/mapwire_rpc.3").exists());
}
