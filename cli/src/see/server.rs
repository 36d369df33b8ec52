//! An endpoint for Prometheus: `GET /metrics` on a loopback address.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Sample, exposition};

const LONGEST: usize = 8 << 10;
/// Time for a client's request, and for its taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Samples that the job's event loop renews and the endpoint shows.
pub(crate) type Shown = Arc<Mutex<Vec<Sample>>>;

/// Reads where the endpoint is to be: a port, or a loopback address and a port.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let address = match text.parse::<u16>() {
        Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        Err(_) => text
            .parse()
            .map_err(|_| "give a port, or an address and a port: 9464, 127.0.0.1:9464, [::1]:9464".to_owned())?,
    };
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{} is reached from other hosts; give an address of loopback", address.ip())),
    }
}

/// Shows `shown` by `listener`, on a thread of its own, as long as the process lives.
pub(crate) fn start(listener: TcpListener, shown: Shown) -> io::Result<()> {
    let serve = move || {
        loop {
            match listener.accept() {
                // A client that breaks off gets no answer.
                Ok((client, _)) => drop(answer(client, &shown)),
                // No descriptors, for a while perhaps.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    std::thread::Builder::new().name("mapwire-metrics".to_owned()).spawn(serve).map(drop)
}

fn answer(mut client: TcpStream, shown: &Shown) -> io::Result<()> {
    let ends = Instant::now() + PATIENCE;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let (status, kind, body) = loop {
        if let Some(status) = judge(&request) {
            break match status {
                "200 OK" => {
                    let samples = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    (status, exposition::CONTENT_TYPE, exposition::text(samples))
                }
                _ => (status, "text/plain; charset=utf-8", format!("{status}; GET /metrics\n")),
            };
        }
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let mut part = [0; 1024];
        let count = client.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&part[..count]);
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The status that a request gets; `None` while it is not whole.
fn judge(request: &[u8]) -> Option<&'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.and_then(|path| path.split('?').next());
            Some(match (parsed.method, path) {
                (Some("GET"), Some("/metrics")) => "200 OK",
                (Some("GET"), _) => "404 Not Found",
                _ => "405 Method Not Allowed",
            })
        }
        Ok(httparse::Status::Partial) if request.len() <= LONGEST => None,
        _ => Some("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_on_loopback() {
        assert_eq!(parse("9464"), Ok(([127, 0, 0, 1], 9464).into()));
        assert!(parse("[::1]:9464").is_ok());
        assert!(parse("0.0.0.0:9464").unwrap_err().contains("loopback"));
        assert!(parse("localhost").unwrap_err().contains("9464"));
    }

    #[test]
    fn requests_are_judged() {
        assert_eq!(judge(b"GET /met"), None);
        assert_eq!(judge(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Some("200 OK"));
        assert_eq!(judge(b"GET /metrics?x HTTP/1.0\r\n\r\n"), Some("200 OK"));
        assert_eq!(judge(b"GET / HTTP/1.1\r\n\r\n"), Some("404 Not Found"));
        assert_eq!(judge(b"POST /metrics HTTP/1.1\r\n\r\n"), Some("405 Method Not Allowed"));
        assert_eq!(judge(b"\x00\x01"), Some("400 Bad Request"));
        assert_eq!(judge(&[b'A'; LONGEST + 1]), Some("400 Bad Request"));
    }

    #[test]
    fn a_client_that_says_nothing_keeps_others_waiting_for_a_while_only() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        start(listener, Shown::default()).unwrap();
        let _silent = TcpStream::connect(address).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("# EOF\n"), "{text}");
    }
}
