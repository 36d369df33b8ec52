//! `mapwire sim paper`: the machines that papers measured.

use crate::common::{Place, json_rows};

#[test]
fn a_papers_figures_come_with_the_published_ones_and_are_drawn() {
    let place = Place::new();
    let args = ["sim", "paper", "gms-np", "--json", "--plot", "figures.svg"];
    let rows = json_rows(&place.run(&args).code(0));
    let origins = rows.iter().filter_map(|row| row["origin"].as_str());
    assert!(origins.clone().any(|origin| origin == "input"));
    assert!(origins.clone().any(|origin| origin == "derived"));
    assert!(origins.clone().any(|origin| origin == "fitted"));
    let sources = rows.iter().filter(|row| row["constant"].is_string());
    assert!(sources.clone().all(|row| row["source"].as_str() > Some("")));
    let cell = |table: &str, system: &str, column: &str| {
        rows.iter().find(|row| row["table"] == table && row["keys"]["system"] == system && row["column"] == column)
    };
    let lookup = cell("Table 1", "GMS-NP(HM)", "NP").unwrap();
    assert_eq!((&lookup["published"], &lookup["role"]), (&13.5.into(), &"predicted".into()));
    assert_eq!(lookup["difference_percent"], -4.9, "{lookup}");
    for table in ["Row sizes", "Nodes", "Skew", "Break-even"] {
        let new = rows.iter().filter(|row| row["table"] == table && row["role"] == "new");
        assert!(new.count() > 5, "{table}");
    }
    let lines = rows.iter().filter(|row| row["figure"] == "Figure 6");
    assert!(lines.clone().all(|line| line["points"].as_array().unwrap().len() == 128));
    assert_eq!(lines.count(), 4);
    assert!(rows.iter().any(|row| row["lane"] == "HDMA" && row["system"] == "GMS-NP(HM)"));
    let drawn = std::fs::read_to_string(place.folder.join("figures.svg")).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert!(drawn.contains("Figure 5: ") && drawn.contains("GMS-NP(NM)"));
    assert_eq!(drawn.matches("<polyline").count(), 4);
}

#[test]
fn a_chapter_tells_how_many_predictions_are_within_a_tenth() {
    let place = Place::new();
    let args = ["sim", "paper", "today", "--json", "--plot", "figures.svg"];
    let rows = json_rows(&place.run(&args).code(0));
    let summary = rows.last().unwrap();
    assert_eq!((&summary["predicted"], &summary["within_10_percent"]), (&3.into(), &3.into()));
    let page =
        rows.iter().find(|row| row["table"] == "Latency" && row["keys"]["bytes"] == "4096" && row["column"] == "RNIC");
    let page = page.unwrap();
    assert_eq!((&page["published"], &page["value"]), (&2.28.into(), &2.275.into()));
    let said = place.run(&["sim", "paper", "today"]).code(0).out();
    assert!(
        said.ends_with("\n3 of 3 predicted figures are within 10 % of the published ones, rounding apart.\n"),
        "{said}"
    );
    let drawn = std::fs::read_to_string(place.folder.join("figures.svg")).unwrap();
    assert!(drawn.contains("Translation cache: ") && drawn.contains("1 K entries"));
}

#[test]
fn a_paper_or_row_size_that_is_not_known_is_refused_with_those_that_are() {
    let place = Place::new();
    let said = place.run(&["sim", "paper", "shrimp"]).code(2).err();
    assert!(said.contains("gms-np, vmmc, utlb"), "{said}");
    let args = ["sim", "paper", "vmmc", "--row-size", "8"];
    let said = place.run(&args).code(1).err();
    assert!(said.contains("no page directory"), "{said}");
    let args = ["sim", "paper", "gms-np", "--row-size", "16"];
    let said = place.run(&args).code(2).err();
    assert!(said.contains("rows have 8, 32 or 64 entries"), "{said}");
    let args = ["sim", "paper", "gms-np", "--plot", "none/figures.svg"];
    let said = place.run(&args).code(1).err();
    assert!(said.contains("none/figures.svg"), "{said}");
}
