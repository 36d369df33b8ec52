//! Traces of communication: every send, fetch and receive of the processes of a cluster, in order of time.
#![forbid(unsafe_code)]
