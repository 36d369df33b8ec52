//! Whatever arrives is refused by name or means something: no panic, no second encoding of one meaning.

use crate::vectors::*;
use mapwire_wire::*;

fn all_vectors() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&str, Vec<u8>)> = Vec::new();
    all.extend(packets().iter().map(|v| (v.name, v.bytes())));
    all.extend(controls().iter().map(|v| (v.name, v.bytes())));
    all.extend(commands().iter().map(|v| (v.name, v.bytes())));
    all
}

#[test]
fn every_truncation_is_refused() {
    for v in packets() {
        let bytes = v.bytes();
        for end in 0..bytes.len() {
            assert!(Packet::new_checked(&bytes[..end]).is_err(), "{} cut to {end}", v.name);
        }
    }
    for v in controls() {
        let bytes = v.bytes();
        for end in 0..bytes.len() {
            assert!(ControlMessage::parse(&bytes[..end]).is_err(), "{} cut to {end}", v.name);
        }
    }
    for v in commands() {
        let bytes = v.bytes();
        for end in 0..bytes.len() {
            assert!(!matches!(parse_command(&bytes[..end]), Some(Ok(_))), "{} cut to {end}", v.name);
        }
    }
}

#[test]
fn a_byte_too_many_is_refused_in_a_packet_and_a_control_message_and_unseen_in_a_command() {
    for v in packets() {
        let bytes = [v.bytes(), vec![0]].concat();
        assert!(Packet::new_checked(&bytes).is_err(), "{}", v.name);
    }
    for v in controls() {
        let bytes = [v.bytes(), vec![0]].concat();
        assert!(ControlMessage::parse(&bytes).is_err(), "{}", v.name);
    }
    for v in commands() {
        let bytes = [v.bytes(), vec![0xff]].concat();
        assert_eq!(parse_command(&bytes), Some(Ok(v.meaning)), "{}", v.name);
    }
}

#[test]
fn every_corruption_of_one_byte_is_refused_or_means_exactly_its_bytes() {
    for (_, vector) in all_vectors() {
        for at in 0..vector.len() {
            for flip in 1..=255u8 {
                let mut bytes = vector.clone();
                bytes[at] ^= flip;
                check_any(&bytes);
            }
        }
    }
}

#[test]
fn every_flag_bit_that_a_kind_does_not_use_is_refused() {
    for v in packets() {
        for bit in 0..16 {
            let mut bytes = v.bytes();
            bytes[2 + bit / 8] ^= 1 << (bit % 8);
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let used = match packet.repr() {
                    Repr::Store { .. } => 0b111,
                    Repr::FetchReply { .. } => 0b001,
                    _ => 0,
                };
                assert_eq!(packet.header().flags().0 & !used, 0, "{}", v.name);
            }
        }
    }
}

fn store() -> Header {
    let repr = packets().remove(0).meaning;
    repr.emit(0).0
}

#[test]
fn another_version_is_refused_by_number() {
    let header = Header { version: 2, ..store() };
    let error = Repr::parse(&header, &[]).unwrap_err();
    assert_eq!(error, WireError::Version { field: "packet version", found: 2, spoken: 1 });
    assert_eq!(error.to_string(), "packet version is 2 but this build speaks 1: run the same mapwire on both sides");
}

#[test]
fn an_unused_ring_slot_is_refused() {
    assert!(matches!(Repr::parse(&Header::ZERO, &[0; INLINE_BYTES]), Err(WireError::Version { .. })));
    assert!(matches!(CommandRepr::parse(&CommandHeader::ZERO, &[0; INLINE_BYTES]), Err(WireError::Version { .. })));
}

#[test]
fn a_store_of_a_chunk_is_legal_and_of_one_byte_more_is_not() {
    let header = Header { length: (CHUNK_BYTES as u32).into(), ..store() };
    assert!(Repr::parse(&header, &[]).is_ok());
    let header = Header { length: (CHUNK_BYTES as u32 + 1).into(), ..store() };
    assert_eq!(
        Repr::parse(&header, &[]),
        Err(WireError::TooLarge { field: "store length", value: CHUNK_BYTES as u64 + 1, limit: CHUNK_BYTES as u64 })
    );
    let with_signal = Header {
        length: (MAX_PAYLOAD_BYTES as u32).into(),
        flags: Flags::LAST.with(Flags::SIGNAL, true).0.into(),
        ..store()
    };
    let repr = Repr::parse(&with_signal, &[]).unwrap();
    assert_eq!(repr.payload_bytes(), MAX_PAYLOAD_BYTES as u32);
}

#[test]
fn a_store_may_carry_no_data_but_a_signal_needs_its_trailer() {
    let empty = Header { length: 0.into(), ..store() };
    assert!(Repr::parse(&empty, &[]).is_ok());
    let flags = Flags::LAST.with(Flags::SIGNAL, true).0.into();
    let short = Header { length: 15.into(), flags, ..store() };
    assert_eq!(
        Repr::parse(&short, &[]),
        Err(WireError::Truncated { field: "signal trailer", needed_bytes: 16, found_bytes: 15 })
    );
    let bare = Header { length: 16.into(), flags, ..store() };
    assert!(matches!(Repr::parse(&bare, &[]), Ok(Repr::Store { length: 0, signal: true, .. })));
}

#[test]
fn a_store_that_passes_the_end_of_the_address_space_is_refused() {
    let last = Header { offset: (u64::MAX - 4).into(), ..store() };
    assert!(Repr::parse(&last, &[]).is_ok());
    let beyond = Header { offset: (u64::MAX - 3).into(), ..store() };
    assert_eq!(
        Repr::parse(&beyond, &[]),
        Err(WireError::Overflow { field: "store offset", value: u64::MAX - 3, length: 4 })
    );
}

#[test]
fn a_signal_before_the_last_packet_is_refused() {
    for flag in [Flags::NOTIFY, Flags::SIGNAL] {
        let header = Header { flags: flag.0.into(), length: 16.into(), ..store() };
        assert_eq!(Repr::parse(&header, &[]), Err(WireError::NotLast { flags: flag.0 }));
    }
}

#[test]
fn a_signal_word_that_passes_the_end_of_the_address_space_is_refused() {
    let fits = Signal::set(u64::MAX - 15, 1);
    assert_eq!(Signal::from_payload(&fits.to_bytes()), Ok(fits));
    let beyond = Signal::set(u64::MAX - 7, 1);
    assert!(matches!(Signal::from_payload(&beyond.to_bytes()), Err(WireError::Overflow { .. })));
}

#[test]
fn a_signal_knows_three_operations_and_lies_at_multiples_of_eight() {
    for op in [SignalOp::Set, SignalOp::Add, SignalOp::Or] {
        let signal = Signal { offset: 0x40, value: 3, op };
        assert_eq!(Signal::from_payload(&signal.to_bytes()), Ok(signal));
    }
    for code in 3..8_u64 {
        let trailer = [(0x40 | code).to_le_bytes(), [1; 8]].concat();
        let unknown = WireError::Unknown { field: "signal operation", value: code };
        assert_eq!(Signal::from_payload(&trailer), Err(unknown));
    }
    let command = CommandRepr::ShortSend {
        import: ImportId(1),
        offset: 0,
        length: 0,
        notify: false,
        signal: Some(Signal::set(12, 0)),
    };
    assert!(matches!(command.check(), Err(WireError::Unaligned { value: 12, .. })));
}

#[test]
fn an_atomic_of_no_known_operation_width_or_value_is_refused() {
    let v = packets().into_iter().find(|v| v.name == "atomic").unwrap();
    let (header, payload) = v.meaning.emit(0);
    assert_eq!(Repr::parse(&header, &payload), Ok(v.meaning));
    let parse = |word: usize, value: u64| {
        let mut payload = payload.to_vec();
        payload[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
        Repr::parse(&header, &payload)
    };
    for code in [0, 8, 4 << 8 | 8, 1 << 8 | 2, 1 << 8, u64::MAX] {
        assert!(matches!(parse(0, code), Err(WireError::Unknown { .. })), "{code:#x}");
    }
    // Fields that an addition does not use.
    assert!(matches!(parse(2, 1), Err(WireError::Reserved { .. })));
    // The word is four bytes wide.
    assert!(matches!(parse(1, 1 << 32), Err(WireError::TooLarge { .. })));
    assert!(Repr::parse(&header, &payload[..39]).is_err());
    let unaligned = Header { offset: 2.into(), ..header };
    assert!(matches!(Repr::parse(&unaligned, &payload), Err(WireError::Unaligned { .. })));
    let short = Header { length: 24.into(), ..header };
    assert!(matches!(Repr::parse(&short, &payload), Err(WireError::Length { .. })));
}

#[test]
fn a_fetch_request_whose_payload_is_elsewhere_is_refused() {
    let v = packets().into_iter().find(|v| v.name == "fetch-request").unwrap();
    let (header, payload) = v.meaning.emit(0);
    let slot = [&payload[..], &[0xee; 112]].concat();
    assert_eq!(Repr::parse(&header, &slot), Ok(v.meaning), "a whole slot may be passed");
    assert!(matches!(Repr::parse(&header, &[]), Err(WireError::Truncated { found_bytes: 0, .. })));
}

#[test]
fn a_stray_key_is_refused_without_being_shown() {
    let v = packets().into_iter().find(|v| v.name == "nothing").unwrap();
    let (header, _) = v.meaning.emit(0);
    let error = Repr::parse(&Header { key: KEY, ..header }, &[]).unwrap_err();
    assert_eq!(error.to_string(), "key is 0xa0a1 where it must be zero: clear what this kind does not use");
}

#[test]
fn names_are_utf_8_of_1_to_255_bytes() {
    let longest = "n".repeat(MAX_NAME_BYTES);
    let too_long = "n".repeat(MAX_NAME_BYTES + 1);
    let request = |name| ControlMessage::ImportRequest { request: 1, name, rights: Rights::STORE, token: None };
    assert_eq!(request(&longest).to_vec().unwrap().len(), MAX_CONTROL_BYTES);
    assert_eq!(request("").to_vec(), Err(WireError::Empty { field: "export name" }));
    assert_eq!(
        request(&too_long).to_vec(),
        Err(WireError::TooLarge { field: "export name bytes", value: 256, limit: 255 })
    );
    let mut bytes = request("grid").to_vec().unwrap();
    *bytes.last_mut().unwrap() = 0xff;
    let error = ControlMessage::parse(&bytes).unwrap_err();
    assert_eq!(error, WireError::NotUtf8 { field: "export name", valid_bytes: 3 });
}

#[test]
fn an_import_names_known_rights_or_none_and_a_grant_names_some() {
    let bytes = controls()[0].bytes();
    let with_rights = |rights: u8| {
        let mut bytes = bytes.clone();
        bytes[8] = rights;
        ControlMessage::parse(&bytes).err()
    };
    assert_eq!(with_rights(0), None);
    assert_eq!(with_rights(3), None);
    assert_eq!(with_rights(4), Some(WireError::Unknown { field: "rights", value: 4 }));
}

#[test]
fn a_control_message_needs_room_and_writes_nothing_without_it() {
    let v = &controls()[0];
    let mut out = [0x55; 35];
    let error = v.meaning.emit(&mut out).unwrap_err();
    assert!(matches!(error, WireError::Truncated { needed_bytes: 36, found_bytes: 35, .. }));
    assert_eq!(out, [0x55; 35]);
}

#[test]
fn a_short_send_carries_128_bytes_or_112_and_a_signal() {
    let send = |length: u32, signal| {
        let repr = CommandRepr::ShortSend { import: ImportId(1), offset: 0, length, notify: false, signal };
        command_bytes(repr, &vec![7; length as usize]).map(|bytes| bytes.len())
    };
    assert_eq!(send(128, None), Ok(COMMAND_BYTES + 128));
    assert_eq!(send(112, Some(SIGNAL)), Ok(COMMAND_BYTES + 128));
    let too_large = |value, limit| Err(WireError::TooLarge { field: "short send length", value, limit });
    assert_eq!(send(129, None), too_large(129, 128));
    assert_eq!(send(113, Some(SIGNAL)), too_large(113, 112));
}

#[test]
fn a_hostile_short_send_cannot_reach_past_its_slot() {
    let mut bytes = commands()[1].bytes();
    bytes.resize(COMMAND_BYTES + INLINE_BYTES, 0);
    for length in [113u64, 121, 128, 129, 0xffff_ffff, 1 << 32 | 4, u64::MAX] {
        bytes[24..32].copy_from_slice(&length.to_le_bytes());
        assert!(matches!(parse_command(&bytes), Some(Err(_))), "{length}");
    }
}

#[test]
fn long_transfers_of_nothing_or_past_the_end_of_memory_are_refused() {
    let send = |offset, address, length| {
        let repr = CommandRepr::LongSend {
            import: ImportId(1),
            offset,
            address,
            length,
            notify: false,
            signal: None,
            completion: 0,
        };
        command_bytes(repr, &[]).err()
    };
    assert_eq!(send(0, 1 << 40, 1 << 30), None);
    assert_eq!(send(0, 4096, 0), Some(WireError::Empty { field: "long send length" }));
    let overflow = |field| Some(WireError::Overflow { field, value: u64::MAX - 8, length: 9 });
    assert_eq!(send(0, u64::MAX - 8, 9), overflow("command address"));
    assert_eq!(send(u64::MAX - 8, 0, 9), overflow("command offset"));
}

#[test]
fn data_that_disagrees_with_a_commands_length_is_refused() {
    let v = &commands()[0];
    let error = v.meaning.emit(b"dat", &mut [0; INLINE_BYTES]).unwrap_err();
    assert_eq!(error, WireError::Length { field: "command data", expected_bytes: 4, found_bytes: 3 });
    assert!(v.meaning.emit(b"data", &mut [0; 3]).is_err());
}

/// xorshift64*: small, seeded, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}; give a number")))
}

/// Random bytes almost never pass the first check, so most rounds mutate a vector instead.
#[test]
fn random_and_mutated_bytes_are_refused_or_mean_exactly_their_bytes() {
    let seed = variable("MAPWIRE_SEED").unwrap_or_else(|| {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(0)
    });
    let rounds = variable("MAPWIRE_ROUNDS").unwrap_or(200_000);
    println!("MAPWIRE_SEED={seed} MAPWIRE_ROUNDS={rounds}");
    let mut random = Random(seed | 1);
    let vectors = all_vectors();
    let mut legal = 0;
    for _ in 0..rounds {
        let mut bytes = if random.below(8) == 0 {
            (0..random.below(300)).map(|_| random.next() as u8).collect()
        } else {
            vectors[random.below(vectors.len())].1.clone()
        };
        for _ in 0..random.below(4) {
            match random.below(4) {
                0 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }
                1 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                2 => bytes.truncate(random.below(bytes.len() + 1)),
                _ => {
                    let more = random.below(40);
                    bytes.resize(bytes.len() + more, random.next() as u8);
                }
            }
        }
        legal += check_any(&bytes);
    }
    assert!(rounds < 1000 || legal > 0, "no mutation was legal: the test reaches nothing");
}
