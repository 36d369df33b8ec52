//! One of each kind, with its bytes written out by hand: if a byte changes here, the version must too.
#![allow(dead_code, reason = "each test binary uses some of the tables")]

use mapwire_wire::*;

pub(crate) const SEQUENCE: u32 = 0x2a;
pub(crate) const KEY: Key =
    Key([0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf]);
pub(crate) const REPLY_KEY: Key =
    Key([0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf]);
pub(crate) const SIGNAL: Signal = Signal::set(0x2000, 9);

/// A vector: what it is called, its meaning, its bytes in hexadecimal and what it prints.
pub(crate) struct Vector<T> {
    pub(crate) name: &'static str,
    pub(crate) meaning: T,
    /// What the caller puts behind the header or inside the command.
    pub(crate) data: &'static [u8],
    pub(crate) hex: &'static str,
    pub(crate) prints: &'static str,
}

impl<T> Vector<T> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u8> = self.hex.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'|').collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }
}

/// Packets: header, then payload.
pub(crate) fn packets() -> Vec<Vector<Repr>> {
    vec![
        Vector {
            name: "store",
            meaning: Repr::Store {
                key: KEY,
                export: ExportId(5),
                message: MessageId(7),
                offset: 0x1000,
                length: 4,
                last: false,
                notify: false,
                signal: false,
            },
            data: b"data",
            hex: "01 01 0000 04000000 | 2a000000 00000000 | a0a1a2a3a4a5a6a7a8a9aaabacadaeaf
                  05000000 07000000 | 0010000000000000 | 64617461",
            prints: "[seq 42] store 4 bytes to export 5 at 0x1000 (message 7, key a0a1…, flags none)",
        },
        Vector {
            name: "store-with-signal",
            meaning: Repr::Store {
                key: KEY,
                export: ExportId(5),
                message: MessageId(7),
                offset: 0x1000,
                length: 4,
                last: true,
                notify: true,
                signal: true,
            },
            data: b"data\x00\x20\0\0\0\0\0\0\x09\0\0\0\0\0\0\0",
            hex: "01 01 0700 14000000 | 2a000000 00000000 | a0a1a2a3a4a5a6a7a8a9aaabacadaeaf
                  05000000 07000000 | 0010000000000000 | 64617461 0020000000000000 0900000000000000",
            prints: "[seq 42] store 4 bytes to export 5 at 0x1000 (message 7, key a0a1…, \
                     flags last+notify+signal), then signal 0x9 at 0x2000",
        },
        Vector {
            name: "fetch-request",
            meaning: Repr::FetchRequest {
                key: KEY,
                export: ExportId(5),
                fetch: FetchId(8),
                offset: 0x1000,
                want_bytes: 0x1_0000_0001,
                reply_key: REPLY_KEY,
            },
            data: b"",
            hex: "01 02 0000 18000000 | 2a000000 00000000 | a0a1a2a3a4a5a6a7a8a9aaabacadaeaf
                  05000000 08000000 | 0010000000000000
                  0100000001000000 | b0b1b2b3b4b5b6b7b8b9babbbcbdbebf",
            prints: "[seq 42] fetch 4294967297 bytes of export 5 at 0x1000 (fetch 8, key a0a1…, \
                     reply key b0b1…)",
        },
        Vector {
            name: "fetch-reply",
            meaning: Repr::FetchReply { reply_key: REPLY_KEY, fetch: FetchId(8), offset: 0x20, length: 3, last: true },
            data: b"abc",
            hex: "01 03 0100 03000000 | 2a000000 00000000 | b0b1b2b3b4b5b6b7b8b9babbbcbdbebf
                  00000000 08000000 | 2000000000000000 | 616263",
            prints: "[seq 42] 3 bytes for fetch 8 at 0x20 (reply key b0b1…, flags last)",
        },
        Vector {
            name: "fetch-refused",
            meaning: Repr::FetchRefused { reply_key: REPLY_KEY, fetch: FetchId(8), reason: Refusal::NoRight },
            data: b"",
            hex: "01 04 0000 00000000 | 2a000000 00000000 | b0b1b2b3b4b5b6b7b8b9babbbcbdbebf
                  00000000 08000000 | 0500000000000000",
            prints: "[seq 42] fetch 8 refused: the import was not granted this right (reply key b0b1…)",
        },
        Vector {
            name: "store-refused",
            meaning: Repr::StoreRefused {
                message: MessageId(7),
                export: ExportId(5),
                reason: Refusal::OutOfRange,
                offset: 0x1000,
                length: 0x10,
                count: 3,
            },
            data: b"",
            hex: "01 05 0000 18000000 | 2a000000 00000000 | 00000000000000000000000000000000
                  05000000 07000000 | 0400000000000000
                  0010000000000000 | 1000000000000000 | 0300000000000000",
            prints: "[seq 42] store of message 7 to export 5 at 0x1000, 16 bytes, refused: \
                     the range passes the end of the export (3 in all)",
        },
        Vector {
            name: "handler",
            meaning: Repr::Handler { handler: HandlerId(1), from: ProcessId(4), to: ProcessId(3), length: 5 },
            data: b"hello",
            hex: "01 06 0000 05000000 | 2a000000 00000000 | 00000000000000000000000000000000
                  03000400 01000000 | 0000000000000000 | 68656c6c6f",
            prints: "[seq 42] 5 bytes for handler 1 of process 3, from process 4",
        },
        Vector {
            name: "nothing",
            meaning: Repr::Nothing,
            data: b"",
            hex: "01 07 0000 00000000 | 2a000000 00000000 | 00000000000000000000000000000000
                  00000000 00000000 | 0000000000000000",
            prints: "[seq 42] nothing",
        },
        Vector {
            name: "atomic",
            meaning: Repr::Atomic {
                key: KEY,
                export: ExportId(5),
                fetch: FetchId(9),
                offset: 0x104,
                atomic: Atomic { op: AtomicOp::Add, width: Width::Four, operand: 3 },
                reply_key: REPLY_KEY,
            },
            data: b"",
            hex: "01 08 0000 28000000 | 2a000000 00000000 | a0a1a2a3a4a5a6a7a8a9aaabacadaeaf
                  05000000 09000000 | 0401000000000000
                  0401000000000000 0300000000000000 0000000000000000 b0b1b2b3b4b5b6b7b8b9babbbcbdbebf",
            prints: "[seq 42] add 0x3 to 4 bytes of export 5 at 0x104 (fetch 9, key a0a1…, reply key b0b1…)",
        },
        Vector {
            name: "atomic-compare-swap",
            meaning: Repr::Atomic {
                key: KEY,
                export: ExportId(5),
                fetch: FetchId(9),
                offset: 0x108,
                atomic: Atomic { op: AtomicOp::CompareSwap { expected: 0x22 }, width: Width::Eight, operand: 0x11 },
                reply_key: REPLY_KEY,
            },
            data: b"",
            hex: "01 08 0000 28000000 | 2a000000 00000000 | a0a1a2a3a4a5a6a7a8a9aaabacadaeaf
                  05000000 09000000 | 0801000000000000
                  0803000000000000 1100000000000000 2200000000000000 b0b1b2b3b4b5b6b7b8b9babbbcbdbebf",
            prints: "[seq 42] swap 8 bytes for 0x11 if they are 0x22 of export 5 at 0x108 (fetch 9, key a0a1…, reply key b0b1…)",
        },
    ]
}

/// Control messages, whole.
pub(crate) fn controls() -> Vec<Vector<ControlMessage<'static>>> {
    vec![
        Vector {
            name: "import-request",
            meaning: ControlMessage::ImportRequest { request: 3, name: "grid", rights: Rights::ALL, token: None },
            data: b"",
            hex: "01 01 0000 | 03000000 03000000 04000000
                  00000000000000000000000000000000 | 67726964",
            prints: "request 3: import \"grid\" to store+fetch",
        },
        Vector {
            name: "import-request-with-token",
            meaning: ControlMessage::ImportRequest {
                request: 3, name: "é\n", rights: Rights::STORE, token: Some(KEY)
            },
            data: b"",
            hex: "01 01 0100 | 03000000 01000000 03000000
                  a0a1a2a3a4a5a6a7a8a9aaabacadaeaf | c3a90a",
            prints: "request 3: import \"é\\n\" to store, token a0a1…",
        },
        Vector {
            name: "import-cancel",
            meaning: ControlMessage::ImportCancel { request: 3 },
            data: b"",
            hex: "01 02 0000 | 03000000",
            prints: "request 3: cancelled",
        },
        Vector {
            name: "import-granted",
            meaning: ControlMessage::ImportGranted {
                request: 3,
                export: ExportId(5),
                key: KEY,
                length: 0x10000,
                rights: Rights::FETCH,
                direct: None,
            },
            data: b"",
            hex: "01 03 0000 | 03000000 05000000 02000000
                  a0a1a2a3a4a5a6a7a8a9aaabacadaeaf | 0000010000000000 0000000000000000 0000000000000000",
            prints: "request 3: granted export 5, 65536 bytes to fetch, key a0a1…",
        },
        Vector {
            name: "import-granted-direct",
            meaning: ControlMessage::ImportGranted {
                request: 3,
                export: ExportId(5),
                key: KEY,
                length: 0x10000,
                rights: Rights::ALL,
                direct: Some(MappedPart { offset: 0x77, bytes: 0xf000 }),
            },
            data: b"",
            hex: "01 03 0100 | 03000000 05000000 03000000
                  a0a1a2a3a4a5a6a7a8a9aaabacadaeaf | 0000010000000000 7700000000000000 00f0000000000000",
            prints: "request 3: granted export 5, 65536 bytes to store+fetch, key a0a1…, \
                     61440 bytes from 119 on can be mapped",
        },
        Vector {
            name: "import-refused",
            meaning: ControlMessage::ImportRefused { request: 3, reason: Refusal::NoSuchName },
            data: b"",
            hex: "01 04 0000 | 03000000 08000000",
            prints: "request 3: refused: nothing is exported under this name",
        },
        Vector {
            name: "revoked",
            meaning: ControlMessage::Revoked { export: ExportId(5) },
            data: b"",
            hex: "01 05 0000 | 05000000",
            prints: "export 5 revoked",
        },
        Vector {
            name: "released",
            meaning: ControlMessage::Released { export: ExportId(5), key: KEY },
            data: b"",
            hex: "01 06 0000 | 05000000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
            prints: "export 5 released, key a0a1…",
        },
        Vector { name: "goodbye", meaning: ControlMessage::Goodbye, data: b"", hex: "01 07 0000", prints: "goodbye" },
    ]
}

/// Commands: header, then inline bytes.
pub(crate) fn commands() -> Vec<Vector<CommandRepr>> {
    vec![
        Vector {
            name: "short-send",
            meaning: CommandRepr::ShortSend {
                import: ImportId(6),
                offset: 0x1000,
                length: 4,
                notify: true,
                signal: None,
            },
            data: b"data",
            hex: "01 01 0200 06000000 | 0010000000000000 | 0000000000000000 | 0400000000000000
                  00000000 00000000 | 0000000000000000 | 64617461",
            prints: "short send of 4 bytes to import 6 at 0x1000, then notify",
        },
        Vector {
            name: "short-send-with-signal",
            meaning: CommandRepr::ShortSend {
                import: ImportId(6),
                offset: 0x1000,
                length: 4,
                notify: false,
                signal: Some(SIGNAL),
            },
            data: b"data",
            hex: "01 01 0400 06000000 | 0010000000000000 | 0000000000000000 | 0400000000000000
                  00000000 00000000 | 0000000000000000
                  64617461 0020000000000000 0900000000000000",
            prints: "short send of 4 bytes to import 6 at 0x1000, then signal 0x9 at 0x2000",
        },
        Vector {
            name: "long-send",
            meaning: CommandRepr::LongSend {
                import: ImportId(6),
                offset: 0x1000,
                address: 0x7f00_0000_1234,
                length: 0x20000,
                notify: true,
                signal: Some(SIGNAL),
                completion: 12,
            },
            data: b"",
            hex: "01 02 0600 06000000 | 0010000000000000 | 34120000007f0000 | 0000020000000000
                  0c000000 00000000 | 0000000000000000 | 0020000000000000 0900000000000000",
            prints: "long send of 131072 bytes from 0x7f0000001234 to import 6 at 0x1000, completion 12, \
                     then signal 0x9 at 0x2000, then notify",
        },
        Vector {
            name: "fetch",
            meaning: CommandRepr::Fetch {
                import: ImportId(6),
                offset: 0x1000,
                address: 0x7f00_0000_1234,
                length: 0x20000,
                completion: 13,
            },
            data: b"",
            hex: "01 03 0000 06000000 | 0010000000000000 | 34120000007f0000 | 0000020000000000
                  0d000000 00000000 | 0000000000000000",
            prints: "fetch of 131072 bytes from import 6 at 0x1000 to 0x7f0000001234, completion 13",
        },
        Vector {
            name: "handler",
            meaning: CommandRepr::Handler {
                to: Endpoint { node: NodeId(2), process: ProcessId(3) },
                handler: HandlerId(1),
                length: 5,
            },
            data: b"hello",
            hex: "01 04 0000 02000300 | 0000000000000000 | 0000000000000000 | 0500000000000000
                  00000000 01000000 | 0000000000000000 | 68656c6c6f",
            prints: "5 bytes for handler 1 of process 3 of node 2",
        },
        Vector {
            name: "atomic",
            meaning: CommandRepr::Atomic {
                import: ImportId(7),
                offset: 0x30,
                address: 0x7f0000001000,
                atomic: Atomic { op: AtomicOp::Swap, width: Width::Eight, operand: 0x55 },
                completion: 12,
            },
            data: b"",
            hex: "01 05 0000 07000000 | 3000000000000000 | 0010000000 7f0000 | 0800000000000000
                  0c000000 00000000 | 0000000000000000
                  0802000000000000 5500000000000000 0000000000000000",
            prints: "swap 8 bytes for 0x55 of import 7 at 0x30, old value to 0x7f0000001000, completion 12",
        },
    ]
}

/// The bytes of a command, as a queue entry holds them.
pub(crate) fn command_bytes(repr: CommandRepr, data: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut inline = [0; INLINE_BYTES];
    let (header, used) = repr.emit(data, &mut inline)?;
    Ok([zerocopy::IntoBytes::as_bytes(&header), &inline[..used]].concat())
}

/// Reads a command back from such bytes.
pub(crate) fn parse_command(bytes: &[u8]) -> Option<Result<CommandRepr, WireError>> {
    let (header, inline) = <CommandHeader as zerocopy::FromBytes>::read_from_prefix(bytes).ok()?;
    Some(CommandRepr::parse(&header, inline))
}

/// The bytes of a packet; `data` is the payload unless the packet makes its own.
pub(crate) fn packet_bytes(repr: Repr, sequence: u32, data: &[u8]) -> Vec<u8> {
    let (header, payload) = repr.emit(sequence);
    [zerocopy::IntoBytes::as_bytes(&header), &payload, data].concat()
}

/// What any bytes must do in any of the parsers: be refused, or mean something that is written as the same bytes.
/// Says in how many of the three formats they meant something.
pub(crate) fn check_any(bytes: &[u8]) -> usize {
    let mut legal = 0;
    match Packet::new_checked(bytes) {
        Ok(packet) => {
            legal += 1;
            let header = packet.header();
            let data = match packet.repr() {
                Repr::FetchRequest { .. } | Repr::StoreRefused { .. } | Repr::Atomic { .. } => &[],
                _ => packet.payload(),
            };
            let again = packet_bytes(packet.repr(), header.sequence.get(), data);
            assert_eq!(again, bytes, "{packet}");
            assert_eq!(packet.signal().is_some(), matches!(packet.repr(), Repr::Store { signal: true, .. }));
            assert!(!format!("{packet} {packet:?}").is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match ControlMessage::parse(bytes) {
        Ok(message) => {
            legal += 1;
            assert_eq!(message.to_vec().as_deref(), Ok(bytes), "{message}");
            assert!(bytes.len() <= MAX_CONTROL_BYTES);
            assert!(!format!("{message} {message:?}").is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match parse_command(bytes) {
        Some(Ok(command)) => {
            legal += 1;
            let inline = &bytes[COMMAND_BYTES..];
            let used = command.inline_bytes();
            let again = command_bytes(command, command.data(inline));
            assert_eq!(again.as_deref(), Ok(&bytes[..COMMAND_BYTES + used]), "{command}");
            assert!(!format!("{command} {command:?}").is_empty());
        }
        Some(Err(error)) => assert!(!error.to_string().is_empty()),
        None => {}
    }
    legal
}
