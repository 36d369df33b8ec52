//! What the tests of several modules need: children that may be denied things, and counts.
