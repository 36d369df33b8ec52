//! What is counted of a run.

use crate::coverage::counted;

counted! { Seen {
    pages = PageFetched: "Getpages that found the page at another node.";
    here: "Those that found it in the node's own frames.";
    absent = PageAbsent: "Those that did not find it.";
    from_disk: "Of them, those of a page that is on permanent storage.";
    stored = PageStored: "Putpages that somebody stored.";
    stored_twice = PageStoredTwice: "Of them, those that two nodes stored.";
    refused = PageRefused: "Those that nobody stored.";
    dropped: "Those whose page was not worth a frame.";
    shrunk: "Donations that were taken back.";
    joined = Joined: "Nodes that became members.";
    left = Left: "Nodes that left.";
    crashed = Died: "Nodes that died.";
} }
