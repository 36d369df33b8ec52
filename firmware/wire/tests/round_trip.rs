//! What is written is read back, for every legal packet, control message and command.

use crate::vectors::*;
use mapwire_wire::*;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Key> {
    any::<[u8; 16]>().prop_map(Key)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    proptest::sample::select(&Refusal::ALL[..])
}

fn signal() -> impl Strategy<Value = Option<Signal>> {
    proptest::option::of((any::<u64>(), any::<u64>()).prop_map(|(offset, value)| {
        let offset = offset.min(u64::MAX - Signal::WORD_BYTES) & !7;
        let op = [SignalOp::Set, SignalOp::Add, SignalOp::Or][value as usize % 3];
        Signal { offset, value, op }
    }))
}

/// A range that ends within 64 bits, often right at the end.
fn range(lengths: impl Strategy<Value = u64>) -> impl Strategy<Value = (u64, u64)> {
    (lengths, prop_oneof![any::<u64>(), Just(u64::MAX)])
        .prop_map(|(length, start)| (start.min(u64::MAX - length), length))
}

fn long_length() -> impl Strategy<Value = u64> {
    prop_oneof![1..=100_000u64, Just(u64::MAX)]
}

/// A word, and what becomes of it.
fn word() -> impl Strategy<Value = (u64, Atomic)> {
    any::<(u64, u64, u64, bool, u8)>().prop_map(|(offset, operand, expected, is_wide, op)| {
        let (width, cut) = match is_wide {
            true => (Width::Eight, u64::MAX),
            false => (Width::Four, u64::from(u32::MAX)),
        };
        let expected = expected & cut;
        let op = match op % 3 {
            0 => AtomicOp::Add,
            1 => AtomicOp::Swap,
            _ => AtomicOp::CompareSwap { expected },
        };
        let operand = operand & cut;
        let offset = offset.min(u64::MAX - 8) & !(width.bytes() - 1);
        (offset, Atomic { op, width, operand })
    })
}

fn packet() -> impl Strategy<Value = (Repr, Vec<u8>)> {
    let chunk = CHUNK_BYTES as u64;
    let store = (key(), any::<(u32, u32)>(), range(0..=chunk), any::<(bool, bool)>(), signal()).prop_map(
        |(key, (export, message), (offset, length), (last, notify), signal)| {
            let mut data = vec![0x3c; length as usize];
            data.extend(signal.iter().flat_map(|s| s.to_bytes()));
            let repr = Repr::Store {
                key,
                export: ExportId(export),
                message: MessageId(message),
                offset,
                length: length as u32,
                last: last || notify || signal.is_some(),
                notify,
                signal: signal.is_some(),
            };
            (repr, data)
        },
    );
    let fetch_request = (key(), key(), any::<(u32, u32)>(), range(long_length())).prop_map(
        |(key, reply_key, (export, fetch), (offset, want_bytes))| {
            let repr = Repr::FetchRequest {
                key,
                export: ExportId(export),
                fetch: FetchId(fetch),
                offset,
                want_bytes,
                reply_key,
            };
            (repr, vec![])
        },
    );
    let fetch_reply = (key(), any::<u32>(), range(1..=chunk), any::<bool>()).prop_map(
        |(reply_key, fetch, (offset, length), last)| {
            let repr = Repr::FetchReply { reply_key, fetch: FetchId(fetch), offset, length: length as u32, last };
            (repr, vec![0x3c; length as usize])
        },
    );
    let fetch_refused = (key(), any::<u32>(), refusal()).prop_map(|(reply_key, fetch, reason)| {
        (Repr::FetchRefused { reply_key, fetch: FetchId(fetch), reason }, vec![])
    });
    let store_refused = (any::<(u32, u32)>(), refusal(), range(long_length()), 1..=u64::MAX).prop_map(
        |((message, export), reason, (offset, length), count)| {
            let repr = Repr::StoreRefused {
                message: MessageId(message),
                export: ExportId(export),
                reason,
                offset,
                length,
                count,
            };
            (repr, vec![])
        },
    );
    let atomic =
        (key(), key(), any::<(u32, u32)>(), word()).prop_map(|(key, reply_key, (export, fetch), (offset, atomic))| {
            let repr = Repr::Atomic { key, export: ExportId(export), fetch: FetchId(fetch), offset, atomic, reply_key };
            (repr, vec![])
        });
    let handler = (any::<(u32, u16, u16)>(), 0..=MAX_PAYLOAD_BYTES).prop_map(|((handler, from, to), length)| {
        let repr = Repr::Handler {
            handler: HandlerId(handler),
            from: ProcessId(from),
            to: ProcessId(to),
            length: length as u32,
        };
        (repr, vec![0x3c; length])
    });
    prop_oneof![
        store,
        fetch_request,
        fetch_reply,
        fetch_refused,
        store_refused,
        atomic,
        handler,
        Just((Repr::Nothing, vec![]))
    ]
}

fn rights() -> impl Strategy<Value = Rights> {
    proptest::sample::select(&[Rights::STORE, Rights::FETCH, Rights::ALL][..])
}

fn control(name: &str) -> impl Strategy<Value = ControlMessage<'_>> {
    let request = (any::<u32>(), rights(), proptest::option::of(key()))
        .prop_map(move |(request, rights, token)| ControlMessage::ImportRequest { request, name, rights, token });
    let granted = (any::<(u32, u32, u64)>(), key(), rights(), any::<Option<(u64, u64)>>()).prop_map(
        |((request, export, length), key, rights, part)| {
            let direct = part.filter(|_| length > 0).map(|(offset, bytes)| {
                let offset = offset % length;
                let bytes = 1 + bytes % (length - offset);
                MappedPart { offset, bytes }
            });
            ControlMessage::ImportGranted { request, export: ExportId(export), key, length, rights, direct }
        },
    );
    prop_oneof![
        request,
        granted,
        any::<u32>().prop_map(|request| ControlMessage::ImportCancel { request }),
        (any::<u32>(), refusal()).prop_map(|(request, reason)| ControlMessage::ImportRefused { request, reason }),
        any::<u32>().prop_map(|export| ControlMessage::Revoked { export: ExportId(export) }),
        (any::<u32>(), key()).prop_map(|(export, key)| ControlMessage::Released { export: ExportId(export), key }),
        Just(ControlMessage::Goodbye),
    ]
}

fn command() -> impl Strategy<Value = CommandRepr> {
    let short = (any::<u32>(), range(0..=SHORT_BYTES as u64), any::<bool>(), signal()).prop_map(
        |(import, (offset, length), notify, signal)| {
            let limit = if signal.is_some() { SHORT_SIGNAL_BYTES } else { SHORT_BYTES };
            CommandRepr::ShortSend {
                import: ImportId(import),
                offset,
                length: (length as u32).min(limit as u32),
                notify,
                signal,
            }
        },
    );
    let long = (any::<(u32, u32, u64)>(), range(long_length()), any::<bool>(), signal()).prop_map(
        |((import, completion, address), (offset, length), notify, signal)| CommandRepr::LongSend {
            import: ImportId(import),
            offset,
            address: address.min(u64::MAX - length),
            length,
            notify,
            signal,
            completion,
        },
    );
    let fetch = (any::<(u32, u32, u64)>(), range(long_length())).prop_map(
        |((import, completion, address), (offset, length))| CommandRepr::Fetch {
            import: ImportId(import),
            offset,
            address: address.min(u64::MAX - length),
            length,
            completion,
        },
    );
    let handler = (any::<(u16, u16, u32)>(), 0..=SHORT_BYTES as u32).prop_map(|((node, process, handler), length)| {
        CommandRepr::Handler {
            to: Endpoint { node: NodeId(node), process: ProcessId(process) },
            handler: HandlerId(handler),
            length,
        }
    });
    let atomic = (any::<(u32, u32, u64)>(), word()).prop_map(|((import, completion, address), (offset, atomic))| {
        CommandRepr::Atomic { import: ImportId(import), offset, address: address.min(u64::MAX - 8), atomic, completion }
    });
    prop_oneof![short, long, fetch, handler, atomic]
}

proptest! {
    #[test]
    fn a_packet_is_read_as_it_was_written(
        (repr, data) in packet(),
        sequence in any::<u32>(),
    ) {
        let bytes = packet_bytes(repr, sequence, &data);
        let read = Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(read.repr(), repr);
        prop_assert_eq!(read.header().sequence.get(), sequence);
        prop_assert_eq!(read.payload().len() as u32, repr.payload_bytes());
        prop_assert!(check_any(&bytes) >= 1);
    }

    #[test]
    fn a_packet_is_read_from_a_ring_slot_as_from_a_datagram((repr, data) in packet()) {
        let (header, payload) = repr.emit(0);
        let mut slot = [0xee; INLINE_BYTES];
        let all = [&payload[..], &data].concat();
        if all.len() <= INLINE_BYTES {
            slot[..all.len()].copy_from_slice(&all);
            prop_assert_eq!(Repr::parse(&header, &slot), Ok(repr));
        } else {
            prop_assert_eq!(Repr::parse(&header, &[]), Ok(repr));
        }
    }

    #[test]
    fn a_signal_is_found_behind_the_data((repr, data) in packet()) {
        let bytes = packet_bytes(repr, 0, &data);
        let read = Packet::new_checked(&bytes).unwrap();
        if let Repr::Store { length, signal, .. } = repr {
            prop_assert_eq!(read.data(), &data[..length as usize]);
            let trailer = signal.then(|| Signal::from_payload(&data).unwrap());
            prop_assert_eq!(read.signal(), trailer);
        }
    }

    #[test]
    fn a_control_message_is_read_as_it_was_written(
        (name, message) in "\\PC{1,63}".prop_flat_map(|name| {
            // The strategy borrows the name, so the name must live as long as the test does.
            let name: &'static str = name.leak();
            (Just(name), control(name))
        }),
    ) {
        prop_assume!(name.len() <= MAX_NAME_BYTES);
        let bytes = message.to_vec().unwrap();
        prop_assert_eq!(bytes.len(), message.encoded_bytes());
        prop_assert_eq!(ControlMessage::parse(&bytes), Ok(message));
    }

    #[test]
    fn a_command_is_read_as_it_was_written(repr in command(), fill in any::<u8>()) {
        let data = vec![fill; repr.data_bytes()];
        let bytes = command_bytes(repr, &data).unwrap();
        prop_assert_eq!(bytes.len(), COMMAND_BYTES + repr.inline_bytes());
        prop_assert_eq!(parse_command(&bytes), Some(Ok(repr)));
        prop_assert_eq!(repr.data(&bytes[COMMAND_BYTES..]), &data[..]);
    }

    #[test]
    fn any_48_bytes_are_a_header_that_prints(bytes in any::<[u8; 32]>(), more in any::<[u8; 16]>()) {
        let all = [&bytes[..], &more].concat();
        let header = <Header as zerocopy::FromBytes>::read_from_bytes(&all).unwrap();
        prop_assert!(!header.to_string().is_empty());
        prop_assert_eq!(zerocopy::IntoBytes::as_bytes(&header), &all[..]);
    }
}
