//! What strangers and clients say to a server of names, and what it answers, is refused or is written again as the very same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_names::protocol::{Hello, Request, Response, Welcome};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(request.emit(), bytes);
    }
    if let Ok(response) = Response::parse(bytes) {
        assert_eq!(response.emit(), bytes);
    }
    if let Some(Ok(hello)) = bytes.first_chunk().map(Hello::parse) {
        assert!(bytes.starts_with(&hello.emit()));
    }
    if let Some(Ok(welcome)) = bytes.first_chunk().map(Welcome::parse) {
        assert!(bytes.starts_with(&welcome.emit()));
    }
});
