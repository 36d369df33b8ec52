//! `mapwire lab tables` and `mapwire lab report`.

use std::process::Command;

use crate::common::{Place, json_rows};
use serde_json::Value;

/// Two small traces: 2 nodes of 3 processes each.
fn traces(place: &Place) -> [&'static str; 2] {
    for (pattern, name) in [("zipf", "zipf.mwt"), ("transpose", "transpose.mwt")] {
        let args = [
            "lab",
            "generate",
            pattern,
            "-o",
            name,
            "--records",
            "8K",
            "--nodes",
            "2",
            "--processes",
            "3",
            "--buffer",
            "2M",
        ];
        place.run(&args).code(0);
    }
    ["zipf.mwt", "transpose.mwt"]
}

/// All that the papers have.
const NAMES: [&str; 10] =
    ["Table 3", "Table 4", "Table 5", "Table 6", "Table 7", "Table 8", "Figure 7", "Figure 8", "Figure 3", "Figure 5"];

#[test]
fn every_table_and_figure_is_printed_with_ours_beside_the_papers() {
    let place = Place::new();
    let [zipf, transpose] = traces(&place);
    let text = place.run(&["lab", "tables", zipf, transpose]).code(0).out();
    let mut at = 0;
    for name in NAMES {
        // In the papers' order.
        at += text[at..].find(&format!(" {name}: ")).unwrap_or_else(|| panic!("{name} behind {at} in:\n{text}"));
    }
    // UTLB Table 6, 1 K entries: Barnes has 2.8 and 9.1 us there.
    let row = text.lines().find(|line| line.starts_with("1K ") && line.contains("2.6")).unwrap_or_default();
    assert!(!row.is_empty(), "{text}");
}

#[test]
fn a_cell_is_what_a_study_of_the_same_configuration_counts() {
    let place = Place::new();
    let [zipf, _] = traces(&place);
    let cells = json_rows(&place.run(&["lab", "tables", zipf, "--json"]).code(0));
    let study = ["lab", "study", zipf, "--entries", "2K", "--ways", "2", "--ops", "send,fetch", "--format", "json"];
    let rows = json_rows(&place.run(&study).code(0));
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let rate = row["nic_misses"].as_f64().unwrap() / row["lookups"].as_f64().unwrap();
    let cell = cells.iter().find(|cell| {
        cell["table"] == "UTLB Table 8"
            && cell["source"] == "ours"
            && cell["cache entries"] == "2K"
            && cell["associativity"] == "2-way"
    });
    let cell = cell.unwrap_or_else(|| panic!("{:?}", cells.iter().find(|cell| cell["table"] == "UTLB Table 8")));
    assert!((cell["value"].as_f64().unwrap() - rate).abs() < 0.006, "{cell} and {rate}");
    for name in NAMES {
        let of_table = |cell: &&Value| cell["table"].as_str().unwrap().ends_with(name);
        let ours = cells.iter().filter(of_table).filter(|cell| cell["source"] == "ours" && cell["value"].is_number());
        assert!(ours.count() > 0, "{name}");
    }
}

#[test]
fn a_page_is_whole_or_not_there_and_asks_no_network() {
    let place = Place::new();
    let [zipf, transpose] = traces(&place);
    place.run(&["lab", "report", zipf, transpose, "-o", "report.html", "--machines", "none"]).code(0);
    let page = std::fs::read_to_string(place.folder.join("report.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
    for script in page.split("<script").skip(1) {
        let tag = script.split('>').next().unwrap();
        assert!(!tag.contains("src"), "{tag}");
    }
    assert!(!page.contains("<link ") && !page.contains("<img "));
    for name in NAMES {
        assert!(page.contains(&format!(" {name}</small></h2>")), "{name}");
    }
    // What a phone and a dark room need, and where the traces come from.
    for wanted in [
        "name=\"viewport\" content=\"width=device-width",
        "prefers-color-scheme: dark",
        "<h2>Conclusion</h2>\n<ul>\n<li>zipf: with 8K entries a lookup costs ",
        "mapwire lab generate zipf",
        "Made on 20",
        ">Why the NIC misses: compulsory, capacity, conflict <small>UTLB Figure 7</small></h2>",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let error = place.run(&["lab", "report", zipf, "-o", "missing/report.html"]).code(1).err();
    assert!(error.contains("missing/report.html"), "{error}");
    let error = place.run(&["lab", "report", "absent.mwt", "-o", "other.html"]).code(1).err();
    assert!(error.contains("absent.mwt"), "{error}");
    assert!(!place.has("other.html"));
    place.write("cut.mwt", "MAPW");
    let error = place.run(&["lab", "tables", "cut.mwt"]).code(1).err();
    assert!(error.contains("cut.mwt"), "{error}");
}

#[test]
fn the_report_has_a_chapter_for_each_machine_that_is_chosen() {
    let place = Place::new();
    let [zipf, _] = traces(&place);
    let args = ["lab", "report", zipf, "-o", "report.html"];
    let with = |machines| [args.as_slice(), &["--machines", machines]].concat();
    place.run(&with("gms-np")).code(0);
    let page = std::fs::read_to_string(place.folder.join("report.html")).unwrap();
    for wanted in [
        "<a href=\"#machine-gms-np\">gms-np",
        "<small>mapwire sim paper gms-np</small></h2>",
        "predicted figures are within 10 % of the published ones, rounding apart.",
        "<h3>Table 1</h3>",
        "<h3>Figure 6: ",
        "<td class=\"paper\">predicted</td>",
        "<svg ",
        "<details><summary>Constants of GMS-NP testbed, 1999</summary>",
        "§4.4: programming the registers",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    place.run(&with("none")).code(0);
    let page = std::fs::read_to_string(place.folder.join("report.html")).unwrap();
    assert!(!page.contains("machine-"));
    let said = place.run(&with("gms")).code(2).err();
    assert!(said.contains("gms-np") && said.contains("none"), "{said}");
}

/// A browser without a window, which writes down the page `url` as its scripts have made it; for at most a minute and a half.
fn browser(name: &str, place: &Place, url: &str) -> std::process::Output {
    let profile = place.folder.join("profile");
    Command::new("timeout")
        .args(["-k", "5", "90", name])
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--virtual-time-budget=20000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .output()
        .unwrap()
}

/// A browser that runs on this computer: `scripts/setup.sh --tests` installs one where it can.
fn browser_here(place: &Place) -> Option<&'static str> {
    let page = place.write("small.html", "<p id=drawn>drawn</p>");
    let url = format!("file://{}", page.display());
    let runs = |name: &&str| {
        let done = browser(name, place, &url);
        done.status.success() && String::from_utf8_lossy(&done.stdout).contains("drawn")
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs)
}

#[test]
fn a_browser_draws_every_plot_of_the_page_without_an_error() {
    let place = Place::new();
    let Some(name) = browser_here(&place) else {
        mapwire_testing::skip!("no chromium runs here");
        return;
    };
    let [zipf, transpose] = traces(&place);
    let args = ["lab", "report", zipf, transpose, "-o", "report.html", "--machines", "gms-np"];
    place.run(&args).code(0);
    let path = place.folder.join("report.html");
    let page = std::fs::read_to_string(&path).unwrap();
    let plots = page.matches("<div class=\"plot\">").count();
    assert!(plots >= NAMES.len(), "{plots}");
    let done = browser(name, &place, &format!("file://{}", path.display()));
    let (dom, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{log}");
    let errors: Vec<_> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(errors.is_empty(), "{errors:?}");
    // The document has the page's own text in it, its script's too.
    let made = |what: &str| dom.matches(what).count() - page.matches(what).count();
    assert_eq!(made("svg-container\""), plots, "{log}");
    // What is drawn is the data: lines and bars.
    assert!(made("class=\"trace scatter") >= 5 && made("class=\"point\"") > 100);
}

#[test]
fn the_memory_of_a_nic_is_shown_for_any_design_and_load() {
    let place = Place::new();
    let args = ["lab", "memory", "--design", "dynamic-handle,per-process", "--entries", "1K,2K"];
    let text = place.run(&args).code(0).out();
    for wanted in ["VMH cache", "export table", "lookup structures", "dynamic-handle,entries=2K"] {
        assert!(text.contains(wanted), "{wanted} in:\n{text}");
    }
    let rows = json_rows(&place.run(&[&args[..], &["--processes", "4", "--json"]].concat()).code(0));
    let bytes = |design: &str, structure: &str| {
        let row = rows.iter().find(|row| {
            row["structure"] == structure && row["design"].as_str().is_some_and(|name| name.starts_with(design))
        });
        row.unwrap_or_else(|| panic!("{design} {structure} in {rows:?}"))["bytes"].as_u64().unwrap()
    };
    assert_eq!(2 * bytes("dynamic-handle,entries=1K", "VMH cache"), bytes("dynamic-handle,entries=2K", "VMH cache"));
    for (option, value) in [("--entries", "7"), ("--processes", "0"), ("--nodes", "x"), ("--design", "none")] {
        let error = place.run(&["lab", "memory", option, value]).code(2).err();
        assert!(error.contains(option.trim_start_matches('-')) && error.contains(value), "{error}");
    }
}
