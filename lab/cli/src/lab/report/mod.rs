//! `mapwire lab report`: one HTML page with the papers' tables and figures, ours beside the papers', as interactive plots, and a chapter
//! for each paper's machine. The page has everything in itself, the plotting library too (plotly.js, MIT licence), and asks no network.

mod html;
mod machines;
mod plots;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use mapwire_study::tables::{Cell, Comparison, Gathered, comparisons, conclusions};
use mapwire_trace::Metadata;
use plotly::Plot;

use super::output::{Output, date, escaped};
use super::study::TraceOptions;
use super::tables::gathered;
use super::{DamagedError, LabError};
use html::{list, table_html};
use machines::{Chapter, MachineOptions};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    traces: TraceOptions,
    #[command(flatten)]
    machines: MachineOptions,
    /// The page; it appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn command(args: &ReportArgs) -> Result<(), LabError> {
    let profile = args.traces.profile()?;
    let output = Output::begin(Some(&args.output), &args.traces.traces)?;
    let gathered = gathered(&args.traces)?;
    let tables = comparisons(&gathered, &profile);
    let chapters = args.machines.run()?;
    let made = SystemTime::now().duration_since(UNIX_EPOCH);
    let made = date(made.map_or(0, |it| it.as_secs()));
    let page = page(&gathered, &tables, &chapters, &profile.name, &made);
    output.write(page.as_bytes())?;
    DamagedError::tell(&gathered.damaged)
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page, made at the time `made` with the costs of that profile.
fn page(gathered: &Gathered, tables: &[Comparison], chapters: &[Chapter], profile: &str, made: &str) -> String {
    let mut html = String::new();
    let title = format!("Address translation on {}", gathered.names.join(", "));
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{0}</title>\n<style>{STYLE}</style>\n{1}\n\
         </head>\n<body>\n<h1>{0}</h1>\n",
        escaped(&title),
        Plot::offline_js_sources(),
    );
    html.push_str("<section class=\"top\">\n<h2>Conclusion</h2>\n");
    html.push_str(&list(&conclusions(&gathered.names, tables)));
    for note in &gathered.notes {
        let _ = writeln!(html, "<p class=\"note\">{}.</p>", escaped(note));
    }
    html.push_str("</section>\n<section>\n<h2>Traces</h2>\n<dl>\n");
    for (name, metadata) in gathered.names.iter().zip(&gathered.metadata) {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(&origin(metadata)));
    }
    let _ = write!(
        html,
        "</dl>\n<p>Made on {} by mapwire {}; costs: {}. Each part shows what was computed on these traces; its values stand \
         beside those that the paper prints (shaded).</p>\n</section>\n<nav>\n",
        escaped(made),
        env!("CARGO_PKG_VERSION"),
        escaped(profile)
    );
    for (at, table) in tables.iter().enumerate() {
        let _ =
            writeln!(html, "<a href=\"#t{at}\">{} <small>{} {}</small></a>", table.heading(), table.paper, table.name);
    }
    for chapter in chapters {
        html.push_str(&chapter.link());
    }
    html.push_str("</nav>\n");
    for (at, table) in tables.iter().enumerate() {
        part(&mut html, at, table);
    }
    for chapter in chapters {
        html.push_str(&chapter.html());
    }
    let _ = write!(html, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    html
}

/// Where a trace comes from: its command, and when it was taken.
fn origin(metadata: &Metadata) -> String {
    let mut text =
        if metadata.command.is_empty() { "command not known".to_owned() } else { metadata.command.join(" ") };
    if metadata.synthetic {
        text.push_str(" (made up, no program ran)");
    }
    if let Some(format) = &metadata.imported_from {
        let _ = write!(text, " (imported from {format})");
    }
    if let Some(taken) = metadata.taken_unix_s {
        let _ = write!(text, ", taken {}", date(taken));
    }
    text
}

fn part(html: &mut String, at: usize, table: &Comparison) {
    let _ = writeln!(
        html,
        "<section>\n<h2 id=\"t{at}\">{} <small>{} {}</small></h2>\n<p>{} ({})</p>",
        table.heading(),
        table.paper,
        table.name,
        escaped(&table.caption),
        escaped(table.unit)
    );
    for (number, plot) in plots::plots(table).iter().enumerate() {
        let id = format!("plot-{at}-{number}");
        if plot.has_papers {
            let _ =
                writeln!(html, "<label><input type=\"checkbox\" data-plot=\"{id}\"> with the paper's values</label>");
        }
        let _ = writeln!(html, "<div class=\"plot\">{}</div>", plot.plot.to_inline_html(Some(&id)));
    }
    let _ = writeln!(html, "<details><summary>Values, with the paper's</summary>\n{}</details>", values(table));
    html.push_str(&list(&table.remarks));
    html.push_str("</section>\n");
}

/// The rows of ours with the paper's.
fn values(table: &Comparison) -> String {
    let names = |class, names: &[String]| names.iter().map(|name| (class, name.clone())).collect::<Vec<_>>();
    let cells = |class, cells: &[Cell]| cells.iter().map(|cell| (class, cell.text.clone())).collect::<Vec<_>>();
    let keys = table.keys.iter().map(|key| ("key", (*key).to_owned())).collect();
    let headings = [keys, names("ours", &table.ours.columns), names("paper", &table.published.columns)];
    let rows = table.row_keys.iter().zip(&table.ours.rows).zip(&table.published.rows);
    let rows = rows
        .map(|((keys, ours), published)| [names("key", keys), cells("ours", ours), cells("paper", published)].concat());
    table_html(&headings.concat(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_markup_is_shown_as_text() {
        assert_eq!(escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
