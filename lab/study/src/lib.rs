//! Studies of translation designs: replays of traces, costs, and the tables and figures of the papers.
#![forbid(unsafe_code)]
