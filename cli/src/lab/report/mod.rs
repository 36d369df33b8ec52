//! `mapwire lab report`: one HTML page with the papers' tables and figures, ours beside the papers', as interactive plots. The page
//! has everything in itself, the plotting library too (plotly.js, MIT licence), and asks no network.

mod plots;

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use mapwire_study::tables::{Cell, Comparison, comparisons};
use plotly::Plot;

use super::LabError;
use super::output::Output;
use super::study::TraceOptions;
use super::tables::gathered;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// The page; it appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `mapwire lab report`.
pub(crate) fn command(args: &ReportArgs) -> Result<(), LabError> {
    let profile = args.traces.profile()?;
    let output = Output::begin(Some(&args.output))?;
    let gathered = gathered(&args.traces)?;
    let tables = comparisons(&gathered, &profile);
    output.write(page(&gathered.names, &tables).as_bytes())
}

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 0.3rem; border-top: 1px solid #ccc; padding-top: 1.5rem; }
nav a { margin-right: 1rem; } .plot { height: 26rem; } .tables { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; } th, td { padding: 0.1rem 0.55rem; text-align: right; }
th.key, td.key { text-align: left; } thead th { border-bottom: 1px solid #888; vertical-align: bottom; }
.paper { background: #f3f3ec; } tbody tr:hover td { background: #e8f0fa; } li { max-width: 60rem; }
";

fn page(names: &[String], tables: &[Comparison]) -> String {
    let mut html = String::new();
    let title = format!("Address translation on {}", names.join(", "));
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{STYLE}</style>\n{1}\n\
         </head>\n<body>\n<h1>{0}</h1>\n<p>Each table and figure of the papers, computed on these traces, beside what the paper prints \
         (shaded). In the plots the papers' values are hidden until their names in the legend are chosen.</p>\n<nav>",
        escaped(&title),
        Plot::offline_js_sources(),
    );
    for (at, table) in tables.iter().enumerate() {
        let _ = write!(
            html,
            "<a href=\"#t{at}\">{} {}</a>",
            table.paper, table.name
        );
    }
    html.push_str("</nav>\n");
    for (at, table) in tables.iter().enumerate() {
        let _ = writeln!(
            html,
            "<section>\n<h2 id=\"t{at}\">{} {}</h2>\n<p>{} ({})</p>",
            table.paper,
            table.name,
            escaped(&table.caption),
            escaped(table.unit)
        );
        for (number, plot) in plots::plots(table).iter().enumerate() {
            let id = format!("plot-{at}-{number}");
            let _ = writeln!(
                html,
                "<div class=\"plot\">{}</div>",
                plot.to_inline_html(Some(&id))
            );
        }
        html.push_str(&table_html(table));
        html.push_str("<ul>\n");
        for remark in &table.remarks {
            let _ = writeln!(html, "<li>{}</li>", escaped(remark));
        }
        html.push_str("</ul>\n</section>\n");
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn table_html(table: &Comparison) -> String {
    let mut html = String::from(
        "<details open><summary>Values</summary>\n<div class=\"tables\"><table>\n<thead><tr>",
    );
    for key in &table.keys {
        let _ = write!(html, "<th class=\"key\">{}</th>", escaped(key));
    }
    let head = |html: &mut String, columns: &[String], class: &str| {
        for column in columns {
            let _ = write!(html, "<th class=\"{class}\">{}</th>", escaped(column));
        }
    };
    head(&mut html, &table.ours.columns, "ours");
    head(&mut html, &table.published.columns, "paper");
    html.push_str("</tr></thead>\n<tbody>\n");
    let cells = |html: &mut String, cells: &[Cell], class: &str| {
        for cell in cells {
            let _ = write!(html, "<td class=\"{class}\">{}</td>", escaped(&cell.text));
        }
    };
    for (at, keys) in table.row_keys.iter().enumerate() {
        html.push_str("<tr>");
        for key in keys {
            let _ = write!(html, "<td class=\"key\">{}</td>", escaped(key));
        }
        cells(&mut html, &table.ours.rows[at], "ours");
        cells(&mut html, &table.published.rows[at], "paper");
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div></details>\n");
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_markup_is_shown_as_text() {
        assert_eq!(
            escaped("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }
}
