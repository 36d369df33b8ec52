//! `mapwire lab`: import, export, info and generate, as processes.

use crate::common::{Done, Place};

/// The JSON objects of what a command printed.
fn rows(done: &Done) -> Vec<serde_json::Value> {
    done.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Files of the place's folder.
fn files(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(&place.folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "config")
        .collect();
    names.sort();
    names
}

const HEADER: &str = "time_ns,node,process,op,address,bytes\n";

/// Counted by hand: node 0 has two processes, node 3 one.
const TRACE: &str = "100,0,0,export,0x100000,32768
110,0,0,send,0x5000,4096
120,0,0,send,0x5800,4096
130,0,0,recv,0x100000,64
140,0,1,send,0x5000,4096
150,3,0,fetch,20480,12288
";

fn with_trace() -> Place {
    let place = Place::new();
    place.write("t.csv", &format!("{HEADER}{TRACE}"));
    place.run(&["lab", "import", "t.csv", "-o", "t.mwt"]).code(0);
    place
}

#[test]
fn a_trace_imported_from_text_is_exported_as_the_same_text() {
    let place = with_trace();
    let done = place.run(&["lab", "export", "t.mwt", "-o", "again.csv"]).code(0);
    assert!(done.out().starts_with("again.csv: 6 records as 6 lines in "), "{}", done.out());
    let again = std::fs::read_to_string(place.folder.join("again.csv")).unwrap();
    assert_eq!(again, format!("{HEADER}{}", TRACE.replace("20480", "0x5000")));
    assert_eq!(files(&place), ["again.csv", "t.csv", "t.mwt"]);
}

#[test]
fn every_format_goes_there_and_back() {
    let place = with_trace();
    for (file, lookups) in [("t.parquet", 6), ("t.din", 8), ("t.oracleGeneral", 8)] {
        let done = place
            .run(&["lab", "export", "t.mwt", "-o", file, "--tag-processes", "--time-unit", "ns", "--json"])
            .code(0);
        let row = &rows(&done)[0];
        assert_eq!((&row["file"], row["written"].as_u64()), (&file.into(), Some(lookups)), "{row}");
        let done = place
            .run(&["lab", "import", file, "-o", "b.mwt", "--tag-processes", "--time-unit", "ns", "--json"])
            .code(0);
        assert_eq!(rows(&done)[0]["records"].as_u64(), Some(lookups));
        let info = rows(&place.run(&["lab", "info", "b.mwt", "--json"]).code(0));
        assert_eq!(info[0]["lookups"].as_u64(), Some(8), "{file}");
        assert_eq!(info[0]["footprint_pages"].as_u64(), Some(7), "{file}");
        assert_eq!(info[0]["metadata"]["imported_from"], file.split_once('.').unwrap().1);
    }
}

#[test]
fn records_that_are_no_transfers_are_left_out_of_lookups_under_that_name() {
    let place = Place::new();
    let text = "time_ns,node,process,op,address,bytes\n1,0,0,hold,4096,8\n2,0,0,send,4096,8\n3,0,0,release,4096,8\n";
    place.write("h.csv", text);
    place.run(&["lab", "import", "h.csv", "-o", "h.mwt"]).code(0);
    place
        .run(&["lab", "export", "h.mwt", "-o", "h.din"])
        .code(0)
        .says("note: 2 records that are no transfers are left out: din holds lookups");
    let help = place.run(&["lab", "import", "--help"]).code(0).out();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for op in mapwire_wire::TraceOp::ALL {
        assert!(help.contains(&format!(" {op}")), "{op}: {help}");
    }
}

#[test]
fn info_counts_operations_lookups_and_footprints() {
    let place = with_trace();
    let all = rows(&place.run(&["lab", "info", "t.mwt", "--json"]).code(0));
    let trace = &all[0];
    assert_eq!(trace["records"].as_u64(), Some(6));
    assert_eq!((trace["first_ns"].as_u64(), trace["last_ns"].as_u64()), (Some(100), Some(150)));
    assert_eq!((trace["operations"].as_u64(), trace["lookups"].as_u64()), (Some(5), Some(8)));
    // Of sends and fetches, as UTLB Table 3.
    assert_eq!(trace["footprint_pages_per_node"].as_f64(), Some(3.0));
    assert_eq!(trace["complete"], true);
    let of = |part: &str| all.iter().filter(|row| row["kind"] == part).collect::<Vec<_>>();
    let ops: Vec<_> = of("op").iter().map(|row| row["records"].as_u64().unwrap()).collect();
    assert_eq!(ops.len(), mapwire_wire::TraceOp::ALL.len());
    assert_eq!(ops[..4], [3, 1, 1, 1]);
    assert!(ops[4..].iter().all(|&records| records == 0), "{ops:?}");
    let nodes: Vec<_> = of("node").iter().map(|row| row["footprint_pages"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [4, 3]);
    let processes: Vec<_> = of("process")
        .iter()
        .map(|row| [&row["node"], &row["process"], &row["lookups"]].map(|v| v.as_u64().unwrap()))
        .collect();
    assert_eq!(processes, [[0, 0, 4], [0, 1, 1], [3, 0, 3]]);
    let text = place.run(&["lab", "info", "t.mwt", "--page", "1M"]).code(0).out();
    assert!(text.contains("per node    1.5 pages footprint, 2.0 lookups of sends and fetches"), "{text}");
}

#[test]
fn a_generated_trace_says_that_it_is_synthetic_and_how_to_make_it_again() {
    let place = Place::new();
    let make = |file: &str, seed: &str| {
        let args = [
            "lab",
            "generate",
            "--mix",
            "zipf,sequential",
            "-o",
            file,
            "--records",
            "20K",
            "--nodes",
            "2",
            "--seed",
            seed,
        ];
        place.run(&args).code(0);
        std::fs::read(place.folder.join(file)).unwrap()
    };
    let first = make("a.mwt", "7");
    assert_eq!(make("b.mwt", "7"), first, "the name is no part of it");
    assert_ne!(make("c.mwt", "8"), first);
    let text = place.run(&["lab", "info", "a.mwt"]).code(0).out();
    assert!(text.contains("synthetic   yes"), "{text}");
    let info = rows(&place.run(&["lab", "info", "a.mwt", "--json"]).code(0));
    assert_eq!((info[0]["records"].as_u64(), info[0]["nodes"].as_u64()), (Some(20_000), Some(2)));
    assert_eq!(info[0]["metadata"]["synthetic"], true);
    // The command that the file names makes it again.
    let words = info[0]["metadata"]["command"].as_array().unwrap();
    let mut words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words.remove(0), "mapwire");
    words.extend(["-o", "again.mwt"]);
    place.run(&words).code(0);
    assert_eq!(std::fs::read(place.folder.join("again.mwt")).unwrap(), first);
    // Parquet keeps what the trace says of itself.
    place.run(&["lab", "export", "a.mwt", "-o", "a.parquet"]).code(0);
    place.run(&["lab", "import", "a.parquet", "-o", "p.mwt"]).code(0);
    let info = rows(&place.run(&["lab", "info", "p.mwt", "--json"]).code(0));
    assert_eq!(info[0]["metadata"]["synthetic"], true);
}

#[test]
fn wrong_files_are_told_with_file_line_and_value_and_leave_nothing() {
    let place = Place::new();
    for (name, text, says) in [
        ("a.csv", "", "a.csv: the file is empty; its first line must name the columns"),
        ("b.csv", "when,node\n", "b.csv, line 1: there is no column `when`"),
        (
            "c.csv",
            "time_ns,node,process,op,address,bytes\n1,0,0,send,0,1\n1,0,0,push,0,1\n",
            "c.csv, line 3: op is `push`",
        ),
        (
            "d.csv",
            "time_ns,node,process,op,address,bytes\n2,0,0,send,0,1\n1,0,0,send,0,1\n",
            "d.csv, line 3: its time is 1 ns, before the 2 ns of the record before; --sort",
        ),
        ("e.csv", "time_ns,node,process,op,address,bytes\n", "e.csv holds no records: t.mwt was not written"),
        ("f.din", "0 zz 4\n", "f.din, line 1: the address is `zz`"),
        ("g.oracleGeneral", "too short", "g.oracleGeneral, record 0: the file ends 9 bytes into it"),
        ("h.parquet", "PAR1", "h.parquet: it is not a Parquet file"),
    ] {
        place.write(name, text);
        place.run(&["lab", "import", name, "-o", "t.mwt"]).code(1).says(says);
        assert_eq!(files(&place), [name]);
        std::fs::remove_file(place.folder.join(name)).unwrap();
    }
    place
        .run(&["lab", "import", "none.csv", "-o", "t.mwt"])
        .code(1)
        .says("cannot read none.csv: No such file or directory");
    place.write("t.csv", &format!("{HEADER}{TRACE}"));
    for command in [&["lab", "info", "t.csv"][..], &["lab", "export", "t.csv", "-o", "x.csv"]] {
        place.run(command).code(1).says("t.csv is not a trace file of mapwire: it begins with time_ns,");
    }
    assert_eq!(files(&place), ["t.csv"]);
}

#[test]
fn records_out_of_order_can_be_put_in_order() {
    let place = Place::new();
    place.write("d.csv", &format!("{HEADER}2,0,0,send,1,1\n1,0,0,send,2,1\n2,0,0,send,3,1\n"));
    place.run(&["lab", "import", "--sort", "d.csv", "-o", "d.mwt"]).code(0);
    place.run(&["lab", "export", "d.mwt", "-o", "s.csv"]).code(0);
    let sorted = std::fs::read_to_string(place.folder.join("s.csv")).unwrap();
    assert_eq!(sorted, format!("{HEADER}1,0,0,send,0x2,1\n2,0,0,send,0x1,1\n2,0,0,send,0x3,1\n"));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let place = with_trace();
    place
        .run(&["lab", "generate", "zipf", "-o", "/dev/full", "--records", "50K"])
        .code(1)
        .says("cannot write /dev/full: No space left on device");
    place
        .run(&["lab", "import", "t.csv", "-o", "/dev/full"])
        .code(1)
        .says("cannot write /dev/full: No space left on device");
    for format in ["csv", "din", "oracleGeneral", "parquet"] {
        place
            .run(&["lab", "export", "t.mwt", "-o", "/dev/full", "--to", format, "--node", "3"])
            .code(1)
            .says("cannot write /dev/full: No space left on device");
    }
    let mut info = place.command(&["lab", "info", "t.mwt"]);
    info.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert_eq!(info.status().unwrap().code(), Some(1));
}

#[test]
fn what_stood_under_the_name_stays_when_something_is_wrong() {
    let place = with_trace();
    place.write("out.din", "precious\n");
    place
        .run(&["lab", "export", "t.mwt", "-o", "out.din"])
        .code(1)
        .says("the format tells no processes apart, and there are several (process 1 of node 0 is the second)");
    assert_eq!(std::fs::read_to_string(place.folder.join("out.din")).unwrap(), "precious\n");
    place
        .run(&["lab", "export", "t.mwt", "-o", "out.din", "--node", "9"])
        .code(1)
        .says("t.mwt has nothing to export of what was chosen");
    assert_eq!(files(&place), ["out.din", "t.csv", "t.mwt"]);
    place
        .run(&["lab", "export", "t.mwt", "-o", "no/such/folder.csv"])
        .code(1)
        .says("cannot write no/such/folder.csv: No such file or directory (os error 2); make its folder first");
}

#[test]
fn a_trace_that_is_cut_off_is_shown_as_far_as_it_is_good() {
    let place = with_trace();
    let bytes = std::fs::read(place.folder.join("t.mwt")).unwrap();
    std::fs::write(place.folder.join("cut.mwt"), &bytes[..bytes.len() - 3]).unwrap();
    let says =
        format!("cut.mwt is good for 6 records, up to byte {}: the file is cut off 37 bytes later", bytes.len() - 40);
    let done = place.run(&["lab", "info", "cut.mwt"]).code(0).says(&says);
    assert!(done.out().contains("complete    NO: good for 6 records"), "{}", done.out());
    let info = rows(&place.run(&["lab", "info", "--json", "cut.mwt"]).code(0));
    assert_eq!((&info[0]["complete"], info[0]["damage"]["records"].as_u64()), (&false.into(), Some(6)));
    place.run(&["lab", "export", "cut.mwt", "-o", "x.csv"]).code(1).says(&says);
    assert!(!place.has("x.csv"));
    place.run(&["lab", "export", "cut.mwt", "-o", "x.csv", "--good-part"]).code(0).says(&says);
    assert_eq!(std::fs::read_to_string(place.folder.join("x.csv")).unwrap().lines().count(), 7);
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let place = with_trace();
    for (args, says) in [
        (&["generate", "zipf", "-o", "x.mwt", "--records", "many"][..], "`many` is not a count"),
        (&["generate", "squares", "-o", "x.mwt"], "`squares` is not a pattern; choose one of: sequential, strided"),
        (&["generate", "-o", "x.mwt"], "the following required arguments were not provided"),
        (&["info", "t.mwt", "--page", "3000"], "3000 is not the size of a page: it must be a power of two"),
        (&["export", "t.mwt", "-o", "x.csv", "--to", "xml"], "`xml` is not a format; choose one of: csv, din"),
        (&["export", "t.mwt", "-o", "x.csv", "--time-unit", "h"], "invalid value 'h' for '--time-unit"),
        (
            &["import", "t.txt", "-o", "x.mwt"],
            "the name t.txt tells no format; give --from and one of csv, din, oracleGeneral, parquet",
        ),
        (&["export", "t.mwt", "-o", "x"], "the name x tells no format; give --to and one of"),
    ] {
        place.run(&[&["lab"], args].concat()).code(2).says(says);
    }
    for (args, says) in [
        (&["--records", "0"][..], "--records is 0: a trace has at least one"),
        (&["--bytes", "32M"], "--bytes is 33554432: a transfer has at least one byte, and at most those of --buffer"),
        (&["--skew", "0"], "--skew is 0: it must be above 0"),
    ] {
        let all = [&["lab", "generate", "zipf", "-o", "x.mwt"], args].concat();
        place.run(&all).code(2).says(says);
    }
    assert!(!place.has("x.mwt"));
}

#[test]
fn manual_pages_are_written_of_each_command() {
    let place = Place::new();
    place.run(&["man", "man"]).code(0);
    for name in [
        "mapwire-lab.1",
        "mapwire-lab-import.1",
        "mapwire-lab-export.1",
        "mapwire-lab-info.1",
        "mapwire-lab-generate.1",
        "mapwire-sim-run.1",
    ] {
        assert!(place.has(&format!("man/{name}")), "{name}");
    }
    for name in ["mapwire.1", "mapwire-man.1"] {
        assert!(!place.has(&format!("man/{name}")), "{name}");
    }
}

#[test]
fn what_is_printed_fits_and_may_find_no_reader() {
    let place = Place::new();
    place.prints_as_commands_do(&["lab", "memory"]);
    let made = ["lab", "generate", "zipf", "-o", "t.mwt", "--records", "1K"];
    place.run(&made).code(0);
    for columns in [60, 80] {
        place.fits(&["lab", "tables", "t.mwt"], columns);
    }
}

#[test]
fn nobody_who_reads_is_no_error() {
    let place = with_trace();
    let done = place.run(&["lab", "export", "t.mwt", "-o", "/dev/stdout", "--to", "csv"]).code(0);
    assert!(done.out().starts_with(HEADER), "{}", done.out());
}

#[test]
fn ctrl_c_leaves_no_part_of_a_file() {
    let place = Place::new();
    let args = ["lab", "generate", "zipf", "-o", "big.mwt", "--records", "1G"];
    let running = place.start(&args);
    crate::common::eventually("it writes", || crate::common::written(running.pid()) > 100_000);
    running.signal(rustix::process::Signal::INT);
    running.wait();
    let left: Vec<_> = std::fs::read_dir(&place.folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
