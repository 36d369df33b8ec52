use super::*;
use crate::importers::Importers;
use alloc::string::String;
use alloc::vec;
use mapwire_wire::{MappedPart, ProcessId};

const EXPORTER: Endpoint = Endpoint::first_of(NodeId(0));
const IMPORTER: Endpoint = Endpoint::first_of(NodeId(1));
const OTHER: Endpoint = Endpoint::first_of(NodeId(2));

/// Exchanges messages between two models until both are quiet; returns their other actions.
fn exchange(exporter: &mut Vmmc, importer: &mut Vmmc) -> Vec<(Endpoint, Action)> {
    let mut seen = Vec::new();
    loop {
        let mut quiet = true;
        while let Some(action) = exporter.poll_action() {
            quiet = false;
            match action {
                Action::Send { to: IMPORTER, message } => importer.handle_control(EXPORTER, 0, true, &message).unwrap(),
                action => seen.push((EXPORTER, action)),
            }
        }
        while let Some(action) = importer.poll_action() {
            quiet = false;
            match action {
                Action::Send { to: EXPORTER, message } => {
                    exporter.handle_control(IMPORTER, 1000, true, &message).unwrap()
                }
                action => seen.push((IMPORTER, action)),
            }
        }
        if quiet {
            return seen;
        }
    }
}

const PART: MappedPart = MappedPart { offset: 96, bytes: 4096 };

fn offer(name: &str) -> Offer {
    Offer {
        name: name.to_string(),
        export: ExportId(65_537),
        key: Key([7; 16]),
        length: 8192,
        rights: Rights::ALL,
        importers: Importers::Job,
        direct: None,
    }
}

fn granted(seen: &[(Endpoint, Action)]) -> Grant {
    match seen {
        [.., (IMPORTER, Action::Imported { grant, .. })] => *grant,
        other => panic!("no import in {other:?}"),
    }
}

fn failed(seen: &[(Endpoint, Action)]) -> VmmcError {
    match seen {
        [.., (IMPORTER, Action::Failed { error, .. })] => error.clone(),
        other => panic!("no failure in {other:?}"),
    }
}

#[test]
fn an_import_waits_until_the_name_is_offered() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    importer.import(0, EXPORTER, "field", Rights::STORE, None, 1000).unwrap();
    assert_eq!(exchange(&mut exporter, &mut importer), vec![]);
    exporter.offer(offer("other name")).unwrap();
    assert_eq!(exchange(&mut exporter, &mut importer), vec![]);
    exporter.offer(Offer { export: ExportId(65_538), ..offer("field") }).unwrap();
    let grant = granted(&exchange(&mut exporter, &mut importer));
    assert_eq!((grant.export, grant.length, grant.rights), (ExportId(65_538), 8192, Rights::STORE));
    assert_eq!(exporter.holders(ExportId(65_538)), Some(1));
}

#[test]
fn an_import_times_out_and_names_what_it_waited_for() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    importer.import(7, EXPORTER, "never", Rights::STORE, None, 5_000_000).unwrap();
    exchange(&mut exporter, &mut importer);
    assert_eq!(importer.poll_at(), Some(5_000_007));
    importer.handle_time(5_000_006);
    assert_eq!(importer.poll_action(), None);
    importer.handle_time(5_000_007);
    let error = failed(&exchange(&mut exporter, &mut importer));
    assert_eq!(error, VmmcError::TimedOut { peer: EXPORTER, name: "never".to_string(), waited_ms: 5 });
    // The exporter has been told, and grants nothing to anybody.
    exporter.offer(offer("never")).unwrap();
    assert_eq!(exchange(&mut exporter, &mut importer), vec![]);
    assert_eq!(exporter.holders(ExportId(65_537)), Some(0));
}

#[test]
fn a_grant_that_comes_after_the_time_is_over_is_given_back() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    importer.import(0, EXPORTER, "late", Rights::STORE, None, 10).unwrap();
    exchange(&mut exporter, &mut importer);
    exporter.offer(offer("late")).unwrap();
    importer.handle_time(10);
    exchange(&mut exporter, &mut importer);
    assert_eq!(exporter.holders(ExportId(65_537)), Some(0));
}

#[test]
fn those_who_may_not_import_are_refused_and_told_why() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    let token = Key([1; 16]);
    exporter.offer(Offer { importers: Importers::Token(token), ..offer("secret") }).unwrap();
    for shown in [None, Some(Key([2; 16]))] {
        importer.import(0, EXPORTER, "secret", Rights::STORE, shown, 10).unwrap();
        let error = failed(&exchange(&mut exporter, &mut importer));
        let reason = Refusal::NotPermitted;
        assert_eq!(error, VmmcError::Refused { peer: EXPORTER, name: "secret".to_string(), reason });
    }
    importer.import(0, EXPORTER, "secret", Rights::STORE, Some(token), 10).unwrap();
    granted(&exchange(&mut exporter, &mut importer));
}

#[test]
fn a_user_is_who_the_system_says_not_who_the_message_says() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    exporter.offer(Offer { importers: Importers::User(0), ..offer("root's") }).unwrap();
    // The message claims user 0; `exchange` reports it as user 1000's.
    importer.import(0, EXPORTER, "root's", Rights::STORE, None, 10).unwrap();
    failed(&exchange(&mut exporter, &mut importer));
}

#[test]
fn rights_that_are_not_offered_are_refused() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    exporter.offer(Offer { rights: Rights::STORE, ..offer("mailbox") }).unwrap();
    importer.import(0, EXPORTER, "mailbox", Rights::FETCH, None, 10).unwrap();
    let error = failed(&exchange(&mut exporter, &mut importer));
    assert_eq!(error, VmmcError::Refused { peer: EXPORTER, name: "mailbox".to_string(), reason: Refusal::NoRight });
}

#[test]
fn memory_is_passed_before_the_grant_under_the_number_of_the_importers_request() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    exporter.offer(Offer { direct: Some(PART), ..offer("pages") }).unwrap();
    let mut ask = |name, rights| importer.import(0, EXPORTER, name, rights, None, 10).unwrap();
    let later = ask("later", Rights::FETCH);
    let first = ask("pages", Rights::FETCH);
    let second = ask("pages", Rights::NONE);
    assert_ne!(first, later);
    assert!(importer.awaits(EXPORTER, first) && importer.awaits(EXPORTER, later));
    assert!(!importer.awaits(IMPORTER, first));
    let seen = exchange(&mut exporter, &mut importer);
    let export = ExportId(65_537);
    // First admitted, with the requested rights or with all, then given the memory, before it learns of either.
    for (at, request, rights) in [(0, first, Rights::FETCH), (2, second, Rights::ALL)] {
        let to = IMPORTER;
        let granted = Action::Granted { to, export, rights };
        let tag = u64::from(request.0);
        let passed = Action::PassMemory { to, export, tag };
        assert_eq!((&seen[at].1, &seen[at + 1].1), (&granted, &passed));
    }
    let grants: Vec<Grant> = seen
        .iter()
        .filter_map(|(_, action)| match action {
            Action::Imported { grant, .. } => Some(*grant),
            _ => None,
        })
        .collect();
    assert_eq!((grants[0].rights, grants[0].direct), (Rights::FETCH, Some(PART)));
    assert_eq!((grants[1].rights, grants[1].direct), (Rights::ALL, Some(PART)));
    assert!(!importer.awaits(EXPORTER, first) && importer.awaits(EXPORTER, later));
}

#[test]
fn who_cannot_map_memory_is_promised_none_and_gets_no_rights_beyond_those_it_asked_for() {
    let mut exporter = Vmmc::new();
    let request = ControlMessage::ImportRequest { request: 5, name: "mapped", rights: Rights::STORE, token: None };
    let mut bytes = [0; MAX_CONTROL_BYTES];
    let length = request.emit(&mut bytes).unwrap();
    // One asks before the name is there, one when it is.
    let waits = exporter.handle_control(IMPORTER, 0, false, &bytes[..length]);
    waits.unwrap();
    let direct = Some(PART);
    let named = offer("mapped");
    exporter.offer(Offer { direct, ..named }).unwrap();
    let asks = exporter.handle_control(OTHER, 0, false, &bytes[..length]);
    asks.unwrap();
    for importer in [IMPORTER, OTHER] {
        let of_importer = |to: &Endpoint| *to == importer;
        let admitted = exporter.poll_action();
        assert!(matches!(admitted, Some(Action::Granted { to, rights: Rights::STORE, .. }) if of_importer(&to)));
        let granted = exporter.poll_action();
        assert!(matches!(granted, Some(Action::GrantedApart { to, .. }) if of_importer(&to)));
        let Some(Action::Send { to, message }) = exporter.poll_action() else {
            panic!("it is asked for something else than a message");
        };
        let Ok(ControlMessage::ImportGranted { rights, direct, .. }) = ControlMessage::parse(&message) else {
            panic!("it grants nothing");
        };
        assert_eq!((to, rights, direct), (importer, Rights::STORE, None));
    }
    assert_eq!(exporter.poll_action(), None);
}

#[test]
fn holders_are_told_once_when_an_export_is_withdrawn() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    exporter.offer(offer("shared")).unwrap();
    importer.import(0, EXPORTER, "shared", Rights::STORE, None, 10).unwrap();
    importer.import(0, EXPORTER, "shared", Rights::FETCH, None, 10).unwrap();
    exchange(&mut exporter, &mut importer);
    let export = ExportId(65_537);
    assert_eq!(exporter.withdraw(export).unwrap().name, "shared");
    let seen = exchange(&mut exporter, &mut importer);
    assert_eq!(seen, vec![(IMPORTER, Action::Revoked { from: EXPORTER, export })]);
    assert!(exporter.withdraw(export).is_none());
    // The name is free again.
    exporter.offer(offer("shared")).unwrap();
}

#[test]
fn a_name_is_taken_once_and_has_a_length() {
    let mut exporter = Vmmc::new();
    exporter.offer(offer("one")).unwrap();
    assert_eq!(exporter.offer(offer("one")), Err(VmmcError::NameTaken("one".to_string())));
    assert_eq!(exporter.offer(offer("")), Err(VmmcError::BadName(0)));
    assert_eq!(exporter.offer(offer(&"x".repeat(256))), Err(VmmcError::BadName(256)));
}

#[test]
fn what_is_asked_of_a_node_that_goes_fails_and_what_it_held_is_free() {
    let (mut exporter, mut importer) = (Vmmc::new(), Vmmc::new());
    exporter.offer(offer("a")).unwrap();
    importer.import(0, EXPORTER, "a", Rights::STORE, None, 10).unwrap();
    exchange(&mut exporter, &mut importer);
    exporter.handle_peer_gone(IMPORTER.node);
    assert_eq!(exporter.holders(ExportId(65_537)), Some(0));
    importer.import(0, EXPORTER, "b", Rights::STORE, None, 10).unwrap();
    importer.import(0, OTHER, "c", Rights::STORE, None, 10).unwrap();
    importer.handle_peer_gone(EXPORTER.node);
    let failures = core::iter::from_fn(|| importer.poll_action())
        .filter(|action| matches!(action, Action::Failed { error: VmmcError::PeerGone { peer: EXPORTER, .. }, .. }))
        .count();
    assert_eq!(failures, 1);
}

#[test]
fn a_peer_cannot_make_the_exporter_remember_without_bound() {
    let mut exporter = Vmmc::new();
    let mut importer = Vmmc::new();
    for n in 0..MAX_WAITING + 10 {
        importer.import(0, EXPORTER, &alloc::format!("name {n}"), Rights::STORE, None, 10).unwrap();
    }
    let seen = exchange(&mut exporter, &mut importer);
    assert_eq!(seen.len(), 10);
    assert_eq!(exporter.waiting.len(), MAX_WAITING);
}

/// Sends the exporter `count` requests for `name`, each of another process of the importer's node. Returns how many it refuses.
fn ask_as_many(exporter: &mut Vmmc, count: u16, name: &dyn Fn(u16) -> String) -> usize {
    let mut refused = 0;
    for process in 0..count {
        let from = Endpoint { node: IMPORTER.node, process: ProcessId(process) };
        let request =
            ControlMessage::ImportRequest { request: 1, name: &name(process), rights: Rights::STORE, token: None };
        let mut bytes = [0; MAX_CONTROL_BYTES];
        let length = request.emit(&mut bytes).unwrap();
        exporter.handle_control(from, 0, true, &bytes[..length]).unwrap();
        while let Some(Action::Send { message, .. }) = exporter.poll_action() {
            let reason = Refusal::Busy;
            let is_refusal =
                |answer| matches!(answer, Ok(ControlMessage::ImportRefused { reason: other, .. }) if other == reason);
            refused += usize::from(is_refusal(ControlMessage::parse(&message)));
        }
    }
    refused
}

#[test]
fn a_node_that_names_ever_new_processes_is_not_remembered_without_bound() {
    let mut exporter = Vmmc::new();
    let count = MAX_OF_NODE as u16 + 10;
    let refused = ask_as_many(&mut exporter, count, &|n| alloc::format!("name {n}"));
    assert_eq!((refused, exporter.waiting.len()), (10, MAX_OF_NODE));
    exporter.offer(offer("one")).unwrap();
    let refused = ask_as_many(&mut exporter, count, &|_| "one".to_string());
    assert_eq!(refused, 10);
    assert_eq!(exporter.holders(ExportId(65_537)), Some(MAX_OF_NODE));
}

#[test]
fn bytes_that_are_no_message_change_nothing() {
    let mut exporter = Vmmc::new();
    exporter.offer(offer("a")).unwrap();
    for length in 0..64 {
        assert!(exporter.handle_control(IMPORTER, 0, true, &vec![0xa5; length]).is_err());
    }
    assert_eq!(exporter.poll_action(), None);
}
