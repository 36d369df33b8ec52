//! Tables and lists of the page.

use crate::lab::output::escaped;

/// A cell: its class, and its text.
pub(super) type Word = (&'static str, String);

pub(super) fn table_html(headings: &[Word], rows: impl Iterator<Item = Vec<Word>>) -> String {
    let cells = |tag: &str, words: &[Word]| -> String {
        let cell = |(class, text): &Word| format!("<{tag} class=\"{class}\">{}</{tag}>", escaped(text));
        words.iter().map(cell).collect()
    };
    let rows: String = rows.map(|row| format!("<tr>{}</tr>\n", cells("td", &row))).collect();
    let headings = cells("th", headings);
    format!(
        "<div class=\"tables\"><table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>"
    )
}

pub(super) fn list(texts: &[String]) -> String {
    let items: String = texts.iter().map(|text| format!("<li>{}</li>\n", escaped(text))).collect();
    format!("<ul>\n{items}</ul>\n")
}
