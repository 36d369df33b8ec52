//! The files that `make install` installs, and the library's symbols, which are those of the header.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{Folder, Installed, Linking, clean, here, make, run};

/// The functions of the header, by name, each with its prototype up to the closing bracket.
fn prototypes() -> BTreeMap<String, String> {
    let header = std::fs::read_to_string(here().join("include/mapwire.h")).unwrap();
    let mut found = BTreeMap::new();
    let mut at = 0;
    for line in header.lines() {
        let rest = &header[at..];
        at += line.len() + 1;
        if line.starts_with([' ', '#', '/', '}']) || line.starts_with("typedef") {
            continue;
        }
        let Some((head, _)) = line.split_once('(') else {
            continue;
        };
        let name = head.split([' ', '*']).next_back().unwrap();
        if name.starts_with("mw_") {
            found.insert(name.to_owned(), rest[..rest.find(')').unwrap()].to_owned());
        }
    }
    assert!(found.len() > 30, "only {} functions were found", found.len());
    found
}

/// Whether a program is installed; prints a line if not.
fn has(program: &str) -> bool {
    let found = clean(program).arg("--version").output().is_ok();
    if !found {
        mapwire_testing::skip!("there is no {program}");
    }
    found
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() {
    let installed = Installed::get(Linking::Shared);
    let listed = run(clean("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(installed.path("lib/libmapwire.so")));
    let symbols: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(symbols, prototypes().into_keys().collect());
}

#[test]
fn the_shared_library_is_known_by_its_interface() {
    let installed = Installed::get(Linking::Shared);
    let link = |name: &str| std::fs::read_link(installed.path(name)).unwrap();
    assert_eq!(link("lib/libmapwire.so"), Path::new("libmapwire.so.0"));
    let real = format!("libmapwire.so.{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(link("lib/libmapwire.so.0"), Path::new(&real));
    if has("readelf") {
        let dynamic = run(clean("readelf").arg("--dynamic").arg(installed.path("lib/libmapwire.so")));
        assert!(dynamic.contains("soname: [libmapwire.so.0]"), "{dynamic}");
        // The threads and handlers of the library outlive `dlclose`.
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
}

#[test]
fn pkg_config_tells_version_place_and_what_a_static_program_needs() {
    let installed = Installed::get(Linking::Shared);
    assert_eq!(installed.pkg_config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let libs = installed.pkg_config(&["--libs"]);
    assert!(libs.contains("-lmapwire") && !libs.contains("-lpthread"), "{libs}");
    let libs = Installed::get(Linking::Static).pkg_config(&["--libs"]);
    assert!(libs.contains("-lmapwire") && libs.contains("-lpthread"), "{libs}");
}

#[test]
fn an_installation_is_staged_below_its_destination_and_can_be_taken_back() {
    let folder = Folder::new();
    let variables =
        ["PREFIX=/opt/mapwire", "LIBDIR=/opt/mapwire/lib64", &format!("DESTDIR={}", folder.path().display())];
    run(&mut make("install", &variables));
    let at = |name: &str| folder.path().join("opt/mapwire").join(name);
    for name in ["include/mapwire.h", "lib64/libmapwire.so", "lib64/libmapwire.a", "share/man/man3/mw_node.3"] {
        assert!(at(name).exists(), "{name}");
    }
    let text = std::fs::read_to_string(at("lib64/pkgconfig/mapwire.pc")).unwrap();
    assert!(text.contains("prefix=/opt/mapwire\n") && text.contains("libdir=${prefix}/lib64\n"), "{text}");
    assert!(!text.contains('@'), "{text}");
    run(&mut make("uninstall", &variables));
    let mut left = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                left.push(path);
            }
        }
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_header_alone_is_read_by_old_and_new_compilers_of_c_and_cpp() {
    let folder = Folder::new();
    let include = format!("-I{}", here().join("include").display());
    let compile = |compiler: &str, file: &str, standard: &str| {
        let path = folder.path().join(file);
        std::fs::write(&path, "#include <mapwire.h>\n#include <mapwire.h>\n").unwrap();
        run(clean(compiler)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .args([standard, &include])
            .arg(&path));
    };
    for standard in ["-std=c90", "-std=gnu89", "-std=c11", "-std=c17", "-std=c2x"] {
        compile("cc", "alone.c", standard);
    }
    if has("c++") {
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            compile("c++", "alone.cpp", standard);
        }
    }
}

#[test]
fn a_cpp_program_links_with_the_library() {
    if !has("c++") {
        return;
    }
    let installed = Installed::get(Linking::Shared);
    let folder = Folder::new();
    let source = folder.path().join("version.cpp");
    let text = "#include <mapwire.h>\n#include <cstdio>\nint main() {\n    mw_export_options_t options{};\n    options.size = sizeof options;\n    mw_status_t status = mw_version_check(MW_VERSION_NUMBER, MW_ABI);\n    std::printf(\"%s %s\\n\", mw_version(), mw_status_name(status));\n}\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("version");
    run(clean("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror"])
        .args(installed.pkg_config(&["--cflags"]).split_whitespace())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(installed.pkg_config(&["--libs"]).split_whitespace()));
    let output = run(clean(&program).env("LD_LIBRARY_PATH", installed.path("lib")));
    assert_eq!(output, format!("{} MW_OK\n", env!("CARGO_PKG_VERSION")));
}

/// The prototypes of the header, or of the pages' synopses, normalised.
fn in_one_form(prototype: &str) -> String {
    let spaced = prototype.replace('(', " ( ").replace(',', " , ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    words.join(" ").replace(" ( ", "(").replace(" , ", ", ").replace("* ", "*")
}

#[test]
fn every_function_has_its_prototype_in_one_manual_page() {
    let wanted: BTreeSet<_> = prototypes().values().map(|text| in_one_form(text)).collect();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(here().join("man")).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        let (mut result, mut prototype) = ("", None::<(String, Vec<&str>)>);
        for line in page.lines() {
            if let Some(text) = line.strip_prefix(".Ft ") {
                result = text;
            } else if let Some(name) = line.strip_prefix(".Fo ") {
                assert!(page.contains(&format!("\n.Nm {name}")), "{name} is not under NAME of {}", path.display());
                prototype = Some((format!("{result} {name}"), Vec::new()));
            } else if let Some(argument) = line.strip_prefix(".Fa \"")
                && let Some((_, arguments)) = &mut prototype
            {
                arguments.push(argument.trim_end_matches('"'));
            } else if line == ".Fc"
                && let Some((head, arguments)) = prototype.take()
            {
                let text = in_one_form(&format!("{head}({}", arguments.join(", ")));
                assert!(found.insert(text.clone()), "{text} is in two pages");
            }
        }
    }
    assert_eq!(found, wanted);
}

#[test]
fn every_code_of_the_header_is_explained_in_the_manual() {
    let header = std::fs::read_to_string(here().join("include/mapwire.h")).unwrap();
    let page = std::fs::read_to_string(here().join("man/mw_error.3")).unwrap();
    let codes = header.lines().filter_map(|line| line.trim().split_once(" = -").map(|(name, _)| name));
    let mut count = 0;
    for code in codes {
        assert!(page.contains(&format!(".It Dv {code}\n")), "{code}");
        count += 1;
    }
    assert!(count > 10);
}

#[test]
fn the_manual_is_well_formed_and_leads_from_every_function_to_its_page() {
    let installed = Installed::get(Linking::Shared);
    for name in prototypes().into_keys() {
        let page = installed.path(&format!("share/man/man3/{name}.3"));
        let text = std::fs::read_to_string(&page).unwrap();
        let target = text.trim().strip_prefix(".so ").unwrap();
        assert!(installed.path("share/man").join(target).exists(), "{text}");
    }
    if !has("groff") {
        return;
    }
    for entry in std::fs::read_dir(here().join("man")).unwrap() {
        let path = entry.unwrap().path();
        let output = clean("groff").args(["-mdoc", "-Tutf8", "-ww", "-z"]).arg(&path).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", path.display());
    }
}
