//! The chapters about the machines of papers: what `mapwire sim paper` prints, as part of the page.

use std::fmt::Write;

use clap::Args;
use clap::builder::PossibleValuesParser;
use mapwire_sim::hardware::Profile;
use mapwire_sim::paper::{Cell, Figure, Options, PAPERS, Paper, Plot, Report, Row, Table};

use super::html::{self, Word, list};
use super::plots::machine_lines;
use crate::lab::LabError;
use crate::lab::output::escaped;
use crate::progress::Progress;
use crate::sim::paper::{drawing, text};

#[derive(Debug, Args)]
pub(super) struct MachineOptions {
    /// Papers whose machines have a chapter, with commas between them: all, none, or names that `mapwire sim paper` takes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all", value_parser = PossibleValuesParser::new(names()))]
    machines: Vec<String>,
}

fn names() -> Vec<&'static str> {
    let papers = PAPERS.iter().map(|paper| paper.name);
    ["all", "none"].into_iter().chain(papers).collect()
}

pub(super) struct Chapter {
    paper: &'static Paper,
    report: Report,
}

impl MachineOptions {
    pub(super) fn run(&self) -> Result<Vec<Chapter>, LabError> {
        let wants = |name: &str| self.machines.iter().any(|it| it == name);
        let chosen = PAPERS.iter().filter(|paper| wants(paper.name) || wants("all"));
        let chosen: Vec<&'static Paper> = chosen.collect();
        let progress = Progress::steps(chosen.len() as u64);
        let mut chapters = Vec::new();
        for (done, paper) in (0..).zip(chosen) {
            progress.step(done, &format!("machine of {}", paper.name));
            let report = (paper.run)(&Options::default())?;
            chapters.push(Chapter { paper, report });
        }
        Ok(chapters)
    }
}

impl Chapter {
    pub(super) fn link(&self) -> String {
        let name = self.paper.name;
        format!("<a href=\"#machine-{name}\">{name} <small>machine</small></a>\n")
    }

    pub(super) fn html(&self) -> String {
        let Paper { name, title, .. } = self.paper;
        let title = escaped(title);
        let mut html = format!(
            "<section>\n<h2 id=\"machine-{name}\">The machine of {title} <small>mapwire sim paper {name}</small></h2>\n<p>{}</p>\n",
            escaped(text::ABOUT)
        );
        // How much of what is predicted is near to what is published.
        let _ = writeln!(html, "<p>{}</p>", self.report.summary());
        for (at, figure) in self.report.figures.iter().enumerate() {
            html.push_str(&figure_html(figure, &format!("machine-{name}-{at}")));
        }
        for table in &self.report.tables {
            html.push_str(&table_html(table));
        }
        for profile in &self.report.profiles {
            html.push_str(&profile_html(profile));
        }
        html.push_str("</section>\n");
        html
    }
}

fn figure_html(figure: &Figure, id: &str) -> String {
    let mut html = format!("<h3>{}: {}</h3>\n", escaped(figure.name), escaped(&figure.caption));
    let _ = match &figure.plot {
        Plot::Lines(lines) => {
            let plot = machine_lines(lines, figure.x, figure.y).to_inline_html(Some(id));
            writeln!(html, "<div class=\"plot\">{plot}</div>")
        }
        Plot::Spans(_) => {
            let drawn = drawing(std::slice::from_ref(figure));
            writeln!(html, "<div class=\"drawing\">{drawn}</div>")
        }
    };
    html
}

fn table_html(table: &Table) -> String {
    let unit = match table.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let has_published = |row: &Row| row.cells.iter().any(|cell| cell.published.is_some());
    let is_compared = table.rows.iter().any(has_published);
    let mut headings: Vec<Word> = table.keys.iter().map(|key| ("key", (*key).to_owned())).collect();
    for column in &table.columns {
        headings.push(("ours", column.clone()));
        if is_compared {
            headings.extend(["paper", "difference", "role"].map(|name| ("paper", name.to_owned())));
        }
    }
    let rows = table.rows.iter().map(|row| {
        let mut words: Vec<Word> = row.keys.iter().map(|key| ("key", key.clone())).collect();
        for cell in &row.cells {
            words.push(("ours", text::ours(cell)));
            if is_compared {
                words.extend(beside(cell).map(|word| ("paper", word)));
            }
        }
        words
    });
    format!(
        "<h3>{}</h3>\n<p>{}{}</p>\n{}\n{}",
        escaped(table.name),
        escaped(&table.caption),
        escaped(&unit),
        html::table_html(&headings, rows),
        list(&table.notes)
    )
}

/// What the paper has, how far ours is from it, and what part it has.
fn beside(cell: &Cell) -> [String; 3] {
    let published = cell.published.map(|it| text::thousandths(it.milli));
    let role = published.as_ref().map_or("", |_| cell.role.word());
    [published.unwrap_or_default(), text::difference(cell), role.to_owned()]
}

fn profile_html(profile: &Profile) -> String {
    let headings = ["constant", "value", "origin", "source"].map(|name| ("key", name.to_owned()));
    let rows = profile.constants().iter().map(|row| {
        let words = [format!("{:?}", row.cost), text::value(row), row.origin.word().to_owned(), row.source.to_owned()];
        words.map(|word| ("key", word)).into()
    });
    format!(
        "<details><summary>Constants of {}</summary>\n{}</details>\n",
        escaped(profile.name),
        html::table_html(&headings, rows)
    )
}

#[cfg(test)]
mod tests {
    use mapwire_sim::paper::{Published, Role};

    use super::*;

    #[test]
    fn a_compared_table_has_the_papers_figures_behind_each_of_ours() {
        let published = Published { milli: 10_000, digit_milli: 1000 };
        let mut table = Table::new("Table 9", "what there is", "us", &["state"], &["GMS", "HM"]);
        let cells = vec![Cell::beside(12_000, published, Role::Predicted), Cell::new(5_000)];
        table.row(&["I<"], cells);
        table.note("more & more");
        let html = table_html(&table);
        for wanted in [
            "<p>what there is (us)</p>",
            "<td class=\"key\">I&lt;</td><td class=\"ours\">12</td><td class=\"paper\">10</td><td class=\"paper\">*+20.0 %</td><td class=\"paper\">predicted</td>",
            "<td class=\"ours\">5</td><td class=\"paper\"></td><td class=\"paper\"></td><td class=\"paper\"></td></tr>",
            "<li>more &amp; more</li>",
        ] {
            assert!(html.contains(wanted), "{wanted} in {html}");
        }
        let mut alone = Table::new("Nodes", "more", "", &["n"], &["mean"]);
        alone.row(&["2"], vec![Cell::new(1_500)]);
        assert!(!table_html(&alone).contains("class=\"paper\""));
    }
}
