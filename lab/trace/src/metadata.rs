//! What a trace file says of itself.

use serde::{Deserialize, Serialize};

/// Where a trace comes from. Every member may be missing in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The program that wrote the file, with its version.
    pub made_by: String,
    /// The whole command whose communication was traced, or that generated or imported the records.
    pub command: Vec<String>,
    /// The records were made up by a generator; no program communicated so.
    pub synthetic: bool,
    /// Bytes of a page on the computers that were traced.
    pub page_bytes: u64,
    /// Nodes of the job, if that is known; a node that communicated nothing has no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Computers on which the job ran, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// When the records were taken, in seconds since 1970, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_unix_s: Option<u64>,
    /// The format from which the records were imported, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<String>,
    /// Anything else a reader may want to know, in plain words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            made_by: concat!("mapwire ", env!("CARGO_PKG_VERSION")).to_owned(),
            command: Vec::new(),
            synthetic: false,
            page_bytes: 4096,
            nodes: None,
            hosts: None,
            taken_unix_s: None,
            imported_from: None,
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_reads_back_and_bears_members_that_are_missing_or_unknown() {
        let full = Metadata {
            command: vec!["tsp".to_owned(), "--cities".to_owned()],
            synthetic: true,
            nodes: Some(4),
            notes: vec!["two\nlines".to_owned()],
            ..Metadata::default()
        };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Metadata>(&text).unwrap(), full);
        let sparse: Metadata = serde_json::from_str(r#"{"colour":"red","nodes":2}"#).unwrap();
        assert_eq!((sparse.nodes, sparse.page_bytes), (Some(2), 4096));
    }
}
