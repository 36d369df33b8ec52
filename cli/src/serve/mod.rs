//! `mapwire serve`: the server of names, and donors of memory.

mod donate;
mod host;
pub(crate) mod lend;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use mapwire_host::page::PAGE_BYTES;
use mapwire_launch::LaunchError;
use mapwire_names::address::HostPort;
use mapwire_names::address::PORT;
use mapwire_names::server::{Server, ServerStats};
use mapwire_names::{NamesError, SharedSecret, StoreAddress, secret};
use mapwire_settings::size::{self, SizeError};

use crate::args::ServeArgs;
use crate::run::signals::{self, ENDING, Signals};
use crate::{Failure, failing, stdio};
use donate::Donor;
use host::Memory;

pub(crate) fn command(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let file = args.secret_file.clone().unwrap_or_else(secret::usual_path);
    if args.new_secret {
        SharedSecret::create(&file).map_err(failing(1))?;
        println!("{}", copy_text(&file));
        return Ok(ExitCode::SUCCESS);
    }
    let donated = args.donate.as_deref().map(donated_pages).transpose().map_err(failing(2))?;
    let elsewhere = args.names.as_deref().map(str::parse::<StoreAddress>).transpose().map_err(failing(2))?;
    let address = parse_listen(args.listen.as_deref().unwrap_or_default());
    let address = address.map_err(|why| (2, format!("--listen: {why}")))?;
    let secret = match SharedSecret::read(&file) {
        Err(NamesError::NoSecret { .. }) => SharedSecret::create(&file).inspect(|_| {
            eprintln!("mapwire: {}", copy_text(&file));
        }),
        read => read,
    };
    let secret = secret.map_err(failing(1))?;
    // Before the port is there, so that whoever sees it can end this in order.
    let handled = ENDING.into_iter().filter(|it| !signals::is_ignored(*it));
    let stop = Signals::block(&handled.collect::<Vec<_>>());
    let stop = stop.map_err(|error| (1, format!("signals cannot be read: {error}")))?;
    let donor = |store: StoreAddress| {
        donated.map(|pages| Donor {
            store,
            secret_file: file.clone(),
            pages,
            idle_only: args.idle_only,
            directory: args.directory,
            json: args.json,
        })
    };
    if let Some(donor) = elsewhere.and_then(&donor) {
        return donor.run(stop.as_fd()).map(|()| ExitCode::SUCCESS).map_err(failing(1));
    }
    let bound = Server::bind(address, &secret).and_then(|it| Ok((it.address()?, it)));
    let (address, mut server) = bound.map_err(|error| (1, bind_text(address, &error)))?;
    if args.json {
        let began = serde_json::json!({
            "kind": "event", "event": "listening", "address": format!("mapwire://{address}"), "secret_file": file,
        });
        println!("{began}");
    } else {
        println!("names are served at mapwire://{address}, to whoever has the secret in {}", file.display());
    }
    stdio::note(io::stdout().flush());
    let donor = donor(reached_at(address));
    let (served, donated) = match &donor {
        None => (server.serve(stop.as_fd()), Ok(())),
        Some(donor) => serve_both(&mut server, donor, &stop),
    };
    let ServerStats { accepted, welcomed, wrong_secret, other_version, malformed, idle, no_room, requests } =
        server.stats();
    if args.json {
        let ended = serde_json::json!({
            "kind": "event", "event": "ended", "accepted": accepted, "welcomed": welcomed, "wrong_secret": wrong_secret,
            "other_version": other_version, "malformed": malformed, "idle": idle, "no_room": no_room, "requests": requests,
        });
        println!("{ended}");
    } else {
        println!(
            "{requests} requests over {welcomed} of {accepted} connections; refused or ended: {wrong_secret} had another secret, \
             {other_version} were of another version, {malformed} said something malformed, {idle} were idle, {no_room} had no room"
        );
    }
    served.map_err(|error| (1, format!("the server cannot go on: {error}")))?;
    donated.map(|()| ExitCode::SUCCESS).map_err(failing(1))
}

/// Serves names as long as the donor lends, which needs them to end in order.
fn serve_both(server: &mut Server, donor: &Donor, stop: &Signals) -> (io::Result<()>, Result<(), LaunchError>) {
    let (ended, ends) = match UnixStream::pair() {
        Ok(pair) => pair,
        Err(error) => return (Err(error), Ok(())),
    };
    std::thread::scope(|scope| {
        let donates = scope.spawn(move || {
            let outcome = donor.run(stop.as_fd());
            // The other end of it is readable from here on.
            drop(ends);
            outcome
        });
        let served = server.serve(ended.as_fd());
        let donated = donates.join();
        (served, donated.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn donated_pages(text: &str) -> Result<u64, DonateError> {
    let bytes = size::parse(text)?;
    let most = Memory::now().map_or(u64::MAX, |memory| memory.total);
    match bytes / PAGE_BYTES as u64 {
        0 => Err(DonateError::TooLittle(text.to_owned())),
        _ if bytes > most => Err(DonateError::TooMuch(text.to_owned(), most >> 20)),
        pages => Ok(pages),
    }
}

/// The address by which a donor beside the server reaches it.
fn reached_at(listens: SocketAddr) -> StoreAddress {
    let host = match listens.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    StoreAddress::Server(HostPort { host: host.to_string(), port: listens.port() })
}

#[derive(Debug, thiserror::Error)]
enum DonateError {
    #[error("--donate")]
    Size(#[from] SizeError),
    #[error("--donate {0}: too little; give at least 4K")]
    TooLittle(String),
    #[error("--donate {0}: this host has {1} MiB")]
    TooMuch(String, u64),
}

fn copy_text(file: &Path) -> String {
    let file = file.display();
    format!(
        "made a new secret in {file}; copy it to each host whose processes shall use names: scp -p {file} HOST:{file}"
    )
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if text.is_empty() {
        return Ok(SocketAddr::new(loopback, PORT));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(loopback, port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    text.parse().map_err(|_| {
        format!(
            "`{text}` is not an address of this host: expected ADDRESS:PORT, such as 10.0.0.1:{PORT}, [fd00::1]:{PORT} or 0.0.0.0:{PORT} for all"
        )
    })
}

fn bind_text(address: SocketAddr, error: &io::Error) -> String {
    let mend = match error.kind() {
        io::ErrorKind::AddrInUse => "; is a server running there already (`ss -ltnp`)? --listen takes another port",
        io::ErrorKind::AddrNotAvailable => "; --listen takes an address of this host (`ip address`)",
        io::ErrorKind::PermissionDenied => "; ports from 1024 on are everybody's",
        _ => "",
    };
    format!("cannot listen at {address}: {error}{mend}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen_is_loopback_unless_it_is_said() {
        for (text, expected) in [
            ("", "127.0.0.1:6277"),
            ("7000", "127.0.0.1:7000"),
            ("10.0.0.1", "10.0.0.1:6277"),
            ("0.0.0.0:7000", "0.0.0.0:7000"),
            ("::1", "[::1]:6277"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(parse_listen(text).unwrap().to_string(), expected);
        }
        for text in ["node1", "1.2.3", "10.0.0.1:99999", "-1"] {
            assert!(parse_listen(text).unwrap_err().contains("ADDRESS:PORT"));
        }
    }
}
