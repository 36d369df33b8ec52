//! Wireshark's dissector (`contrib/wireshark/mapwire.lua`) shows what the vectors mean. Skipped where there is no `tshark`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::vectors::*;
use mapwire_wire::link::{LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES};
use mapwire_wire::*;

/// A datagram, and fields of the dissector with what they must show.
struct Case {
    name: String,
    datagram: Vec<u8>,
    shows: Vec<(&'static str, String)>,
}

const JOB: u32 = 0x0bad_cafe;
const LINK: LinkHeader = LinkHeader {
    kind: LinkKind::Data,
    path: 1,
    expected: 11,
    epoch: 0x0102_0304_0506_0708,
    peer_epoch: 0x1112_1314_1516_1718,
    number: 9,
    sequence: 77,
};

/// A plain envelope of node 258 around a datagram of a link.
fn plain(link: &[u8]) -> Vec<u8> {
    let [low, high] = (12 + link.len() as u16).to_le_bytes();
    let mut bytes = vec![5, 0, low, high, 2, 1, 0, 0];
    bytes.extend(JOB.to_le_bytes());
    bytes.extend(link);
    bytes
}

fn data(packet: &[u8]) -> Vec<u8> {
    plain(&[&LINK.emit()[..], packet].concat())
}

fn key(key: Key) -> String {
    key.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(value: u64) -> String {
    format!("0x{value:016x}")
}

fn flag(is_set: bool) -> String {
    u8::from(is_set).to_string()
}

/// What is shown of a packet, from its meaning and not from its bytes.
fn shows_of(repr: &Repr, vector: &[u8]) -> Vec<(&'static str, String)> {
    let text = |value: &dyn ToString| value.to_string();
    let mut shows = match *repr {
        Repr::Store { key: opens, export, message, offset, last, notify, signal, .. } => {
            let mut shows = vec![
                ("packet.key", key(opens)),
                ("packet.export", text(&export.0)),
                ("packet.message", text(&message.0)),
                ("packet.offset", hex(offset)),
                ("packet.data", "64617461".to_owned()),
                ("packet.last", flag(last)),
                ("packet.notify", flag(notify)),
                ("packet.signal", flag(signal)),
            ];
            if signal {
                let signal = Signal::from_payload(vector).unwrap();
                shows.push(("signal.offset", hex(signal.offset)));
                shows.push(("signal.value", hex(signal.value)));
                shows.push(("signal.op", text(&(signal.op as u8))));
            }
            shows
        }
        Repr::FetchRequest { key: opens, export, fetch, offset, want_bytes, reply_key } => vec![
            ("packet.key", key(opens)),
            ("packet.export", text(&export.0)),
            ("packet.fetch", text(&fetch.0)),
            ("packet.offset", hex(offset)),
            ("fetch.bytes", text(&want_bytes)),
            ("packet.reply_key", key(reply_key)),
        ],
        Repr::FetchReply { reply_key, fetch, offset, length, last } => vec![
            ("packet.reply_key", key(reply_key)),
            ("packet.fetch", text(&fetch.0)),
            ("packet.offset", hex(offset)),
            ("packet.length", text(&length)),
            ("packet.data", "616263".to_owned()),
            ("packet.last", flag(last)),
        ],
        Repr::FetchRefused { reply_key, fetch, reason } => vec![
            ("packet.reply_key", key(reply_key)),
            ("packet.fetch", text(&fetch.0)),
            ("packet.reason", text(&reason.code())),
        ],
        Repr::StoreRefused { message, export, reason, offset, length, count } => vec![
            ("packet.message", text(&message.0)),
            ("packet.export", text(&export.0)),
            ("packet.reason", text(&reason.code())),
            ("refused.offset", hex(offset)),
            ("refused.bytes", text(&length)),
            ("refused.count", text(&count)),
        ],
        Repr::Handler { handler, from, to, length } => vec![
            ("packet.handler", text(&handler.0)),
            ("packet.from", text(&from.0)),
            ("packet.to", text(&to.0)),
            ("packet.length", text(&length)),
            ("packet.data", "68656c6c6f".to_owned()),
        ],
        Repr::Nothing => vec![("packet.length", "0".to_owned())],
        Repr::Atomic { key: opens, export, fetch, offset, atomic, reply_key } => {
            let (op, expected) = match atomic.op {
                AtomicOp::Add => (1, String::new()),
                AtomicOp::Swap => (2, String::new()),
                AtomicOp::CompareSwap { expected } => (3, hex(expected)),
            };
            vec![
                ("packet.key", key(opens)),
                ("packet.export", text(&export.0)),
                ("packet.fetch", text(&fetch.0)),
                ("packet.offset", hex(offset)),
                ("packet.reply_key", key(reply_key)),
                ("atomic.op", text(&op)),
                ("atomic.width", text(&atomic.width.bytes())),
                ("atomic.operand", hex(atomic.operand)),
                ("atomic.expected", expected),
            ]
        }
    };
    shows.push(("packet.kind", text(&(repr.kind() as u8))));
    shows.push(("packet.sequence", text(&SEQUENCE)));
    shows.push(("link.sequence", "77".to_owned()));
    shows.push(("link.number", "9".to_owned()));
    shows
}

fn shows_of_control(message: &ControlMessage<'_>) -> Vec<(&'static str, String)> {
    let text = |value: &dyn ToString| value.to_string();
    let mut shows = match *message {
        ControlMessage::ImportRequest { request, name, rights, token } => vec![
            ("control.request", text(&request)),
            ("control.name", name.replace('\n', "\\n")),
            ("control.rights", text(&rights.bits())),
            ("control.token", token.map_or_else(String::new, key)),
        ],
        ControlMessage::ImportCancel { request } => vec![("control.request", text(&request))],
        ControlMessage::ImportGranted { request, export, key: opens, length, rights, direct } => vec![
            ("control.request", text(&request)),
            ("control.export", text(&export.0)),
            ("control.key", key(opens)),
            ("control.length", text(&length)),
            ("control.rights", text(&rights.bits())),
            ("control.mapped_offset", direct.map_or_else(String::new, |part| hex(part.offset))),
            ("control.mapped_bytes", direct.map_or_else(String::new, |part| text(&part.bytes))),
        ],
        ControlMessage::ImportRefused { request, reason } => {
            vec![("control.request", text(&request)), ("control.reason", text(&reason.code()))]
        }
        ControlMessage::Revoked { export } => vec![("control.export", text(&export.0))],
        ControlMessage::Released { export, key: opens } => {
            vec![("control.export", text(&export.0)), ("control.key", key(opens))]
        }
        ControlMessage::Goodbye => vec![],
    };
    shows.push(("control.kind", text(&(message.kind() as u8))));
    shows.push(("packet.handler", "0".to_owned()));
    shows
}

/// A packet to handler 0, which takes control messages.
fn control_packet(payload: &[u8]) -> Vec<u8> {
    let repr =
        Repr::Handler { handler: HandlerId(0), from: ProcessId(4), to: ProcessId(3), length: payload.len() as u32 };
    packet_bytes(repr, SEQUENCE, payload)
}

fn links() -> Vec<Case> {
    let mut bytes = [0; MAX_ACK_BYTES];
    let length = LinkAck::new(1234, [(40, 42), (30, 30)]).unwrap().emit(&mut bytes);
    let with = |kind, expected, peer_epoch| LinkHeader { kind, expected, peer_epoch, sequence: 0, ..LINK };
    let of = |name: &str, header: LinkHeader, rest: &[u8], more: &[(&'static str, &str)]| Case {
        name: name.to_owned(),
        datagram: plain(&[&header.emit()[..], rest].concat()),
        shows: [
            ("type", "5".to_owned()),
            ("node", "258".to_owned()),
            ("job", format!("0x{JOB:08x}")),
            ("link.kind", (header.kind as u8).to_string()),
            ("link.path", "1".to_owned()),
            ("link.expected", header.expected.to_string()),
            ("link.epoch", hex(header.epoch)),
            ("link.peer_epoch", hex(header.peer_epoch)),
            ("link.sequence", String::new()),
        ]
        .into_iter()
        .chain(more.iter().map(|(name, value)| (*name, value.to_string())))
        .collect(),
    };
    let challenge = hex(9);
    let acked = [
        ("link.number", "9"),
        ("ack.delay_ns", "1234"),
        ("ack.ranges", "2"),
        ("ack.first", "40,30"),
        ("ack.last", "42,30"),
    ];
    vec![
        of("hello", with(LinkKind::Hello, 0, 0), &[], &[("link.challenge", &challenge), ("link.number", "")]),
        of("welcome", with(LinkKind::Welcome, 0, 5), &[], &[("link.challenge", &challenge)]),
        of("ack", with(LinkKind::Ack, 11, 5), &bytes[..length], &acked[..]),
        of("again", with(LinkKind::Again, 11, 5), &[], &[("link.number", "9")]),
    ]
}

fn envelopes() -> Vec<Case> {
    let case = |name: &str, datagram: Vec<u8>, shows: &[(&'static str, &str)]| Case {
        name: name.to_owned(),
        datagram,
        shows: shows.iter().map(|(k, v)| (*k, v.to_string())).collect(),
    };
    let handshake = |kind: u8, continues: u8, bytes: usize| {
        let mut datagram = vec![kind, 2, 2, 1, 4, 3, continues, 0, 1, 0, 0, 0, 9, 0, 0, 0];
        datagram.resize(bytes - 16, 0x66);
        datagram.resize(bytes, 0x77);
        datagram
    };
    let greeted = |kind, continues| {
        [
            ("type", kind),
            ("node", "258"),
            ("handshake.to", "772"),
            ("handshake.continues", continues),
            ("job", "0x00000001"),
            ("session", "0x00000009"),
            ("handshake.code", "77777777777777777777777777777777"),
        ]
    };
    let mut sealed = vec![4, 0, 68, 0, 9, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0];
    sealed.resize(16 + 36, 0x5a);
    sealed.resize(16 + 36 + 16, 0x77);
    vec![
        case("initiate", handshake(1, 1, 104), &greeted("1", "1")),
        case("respond", handshake(2, 0, 85), &greeted("2", "0")),
        case("cookie", handshake(3, 0, 72), &greeted("3", "0")),
        case(
            "sealed",
            sealed,
            &[
                ("type", "4"),
                ("session", "0x00000009"),
                ("counter", "259"),
                ("sealed", &"5a".repeat(36)),
                ("tag", &"77".repeat(16)),
                ("link.kind", ""),
            ],
        ),
    ]
}

/// Datagrams that no link sends: marked, never a fault of the dissector.
fn malformed() -> Vec<Case> {
    let case = |name: &str, datagram: Vec<u8>| Case {
        name: name.to_owned(),
        datagram,
        shows: vec![("malformed", "1".to_owned())],
    };
    let request = control_packet(&controls()[0].bytes());
    let mut cases: Vec<Case> =
        (1..request.len()).map(|length| case(&format!("request cut to {length}"), data(&request[..length]))).collect();
    let mut kind = packets()[0].bytes();
    kind[1] = 99;
    cases.push(case("packet of kind 99", data(&kind)));
    let mut ack = LinkHeader { kind: LinkKind::Ack, sequence: 0, ..LINK }.emit().to_vec();
    ack.extend([0, 0, 0, 0, 255, 255, 255, 255]);
    cases.push(case("ack of too many ranges", plain(&ack)));
    cases
}

/// A block of a capture file (the pcapng draft of the IETF, §3.1).
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let total = (12 + body.len() + padding) as u32;
    [&kind.to_le_bytes()[..], &total.to_le_bytes(), body, &[0; 3][..padding], &total.to_le_bytes()].concat()
}

/// A capture file of UDP over IPv4 datagrams.
fn capture<'a>(datagrams: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let section = [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX].map(u32::to_le_bytes);
    let interface = [RAW_IP, 0].map(u32::to_le_bytes);
    let mut file = block(0x0a0d_0d0a, section.as_flattened());
    file.extend(block(1, interface.as_flattened()));
    for bytes in datagrams {
        let mut packet = vec![0x45, 0];
        packet.extend((28 + bytes.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0xb7, 0xa3, 0xb7, 0xa3]);
        packet.extend((8 + bytes.len() as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(bytes);
        let length = packet.len() as u32;
        let head = [0, 0, 0, length, length].map(u32::to_le_bytes);
        file.extend(block(6, &[head.as_flattened(), &packet].concat()));
    }
    file
}

/// A file that is removed at the end.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn wireshark_shows_what_every_vector_means() {
    if Command::new("tshark").arg("--version").output().is_err() {
        mapwire_testing::skip!("there is no tshark here");
        return;
    }
    let mut cases = links();
    cases.extend(envelopes());
    cases.extend(packets().iter().map(|v| Case {
        name: v.name.to_owned(),
        datagram: data(&v.bytes()),
        shows: shows_of(&v.meaning, v.data),
    }));
    cases.extend(controls().iter().map(|v| Case {
        name: v.name.to_owned(),
        datagram: data(&control_packet(&v.bytes())),
        shows: shows_of_control(&v.meaning),
    }));
    // What the vectors leave open: flags one by one, and a signal that is not set but added.
    for (notify, op) in [(true, None), (false, Some(SignalOp::Add))] {
        let meaning = Repr::Store {
            key: KEY,
            export: ExportId(5),
            message: MessageId(7),
            offset: 0x1000,
            length: 4,
            last: true,
            notify,
            signal: op.is_some(),
        };
        let trailer = op.map(|op| Signal { op, ..SIGNAL }.to_bytes());
        let payload = [&b"data"[..], trailer.as_ref().map_or(&[][..], |it| &it[..])].concat();
        cases.push(Case {
            name: format!("store, signal {op:?}"),
            datagram: data(&packet_bytes(meaning, SEQUENCE, &payload)),
            shows: shows_of(&meaning, &payload),
        });
    }
    for case in &mut cases {
        case.shows.push(("malformed", String::new()));
    }
    cases.extend(malformed());

    let file = format!("mapwire-dissector-{}.pcapng", std::process::id());
    let file = Temporary(std::env::temp_dir().join(file));
    let datagrams = cases.iter().map(|case| &case.datagram[..]);
    std::fs::write(&file.0, capture(datagrams)).unwrap();
    let mut fields: Vec<&str> = Vec::new();
    for (name, _) in cases.iter().flat_map(|case| &case.shows) {
        if !fields.contains(name) {
            fields.push(name);
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/wireshark/mapwire.lua");
    let mut tshark = Command::new("tshark");
    tshark.arg("-X");
    tshark.arg(format!("lua_script:{}", script.display()));
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]);
    tshark.arg(&file.0);
    for field in ["_ws.col.Protocol", "_ws.lua.error"] {
        tshark.args(["-e", field]);
    }
    for field in &fields {
        tshark.args(["-e", &format!("mapwire.{field}")]);
    }
    let output = tshark.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.contains("Lua"), "{told}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown.lines().count(), cases.len(), "{told}");
    for (case, line) in cases.iter().zip(shown.lines()) {
        let values: Vec<&str> = line.split('|').collect();
        assert_eq!(&values[..2], ["mapwire", ""], "{}: {line}", case.name);
        for (name, expected) in &case.shows {
            let at = fields.iter().position(|field| field == name).unwrap();
            assert_eq!(values[2 + at], expected, "{}: {name}", case.name);
        }
    }
}
