use std::collections::BTreeSet;

use super::*;

fn small(patterns: &[Pattern]) -> Options {
    Options {
        patterns: patterns.to_vec(),
        records: 20_000,
        nodes: 3,
        processes: 2,
        seed: 9,
        buffer_bytes: 64 * 4096,
        ..Options::default()
    }
}

fn generated(options: &Options) -> Vec<TraceRecord> {
    Generator::new(options).unwrap().collect()
}

#[test]
fn every_pattern_gives_as_many_valid_records_as_asked_in_order_of_time() {
    for pattern in Pattern::ALL {
        let records = generated(&small(&[pattern]));
        assert_eq!(records.len(), 20_000, "{pattern}");
        assert!(records.is_sorted_by_key(|r| r.time_ns.get()), "{pattern}");
        assert!(records.iter().all(|r| r.op().is_some() && r.node.get() < 3 && r.process.get() < 2));
        let processes: BTreeSet<_> = records.iter().map(|r| (r.node.get(), r.process.get())).collect();
        assert_eq!(processes.len(), 6, "{pattern}");
    }
}

#[test]
fn the_same_seed_gives_the_same_records_and_another_seed_others() {
    for pattern in Pattern::ALL {
        let options = small(&[pattern]);
        assert_eq!(generated(&options), generated(&options), "{pattern}");
        let other = Options { seed: 10, ..options.clone() };
        assert_ne!(generated(&options), generated(&other), "{pattern}");
    }
}

#[test]
fn a_longer_trace_begins_with_the_shorter_one() {
    let options = small(&[Pattern::Zipf]);
    let longer = Options { records: 30_000, ..options.clone() };
    assert_eq!(generated(&longer)[..20_000], generated(&options));
}

#[test]
fn whatever_arrives_was_begun_before_and_lies_in_the_export() {
    for pattern in Pattern::ALL {
        let records = generated(&small(&[pattern]));
        let (mut begun, mut arrived) = (0, 0);
        for record in &records {
            let (address, bytes) = (record.address.get(), record.bytes.get());
            let (op, begin) = match record.op().unwrap() {
                TraceOp::Send | TraceOp::Fetch => (&mut begun, BUFFER_ADDRESS),
                TraceOp::Receive => (&mut arrived, EXPORT_ADDRESS),
                _ => continue,
            };
            *op += 1;
            assert!((begin..=begin + 64 * 4096).contains(&address));
            assert!(address + bytes <= begin + 64 * 4096);
            assert!(arrived <= begun);
        }
        assert!(arrived * 10 > begun * 9, "{pattern}: {begun} begun, {arrived} arrived");
    }
}

#[test]
fn programs_of_a_mix_are_strangers() {
    let options = Options { buffer_bytes: 32 * 4096, ..small(&[Pattern::Sequential, Pattern::TaskQueue]) };
    let records = generated(&options);
    let of = |process: u16| records.iter().filter(move |r| r.process.get() == process);
    assert!(of(0).all(|r| r.op() != Some(TraceOp::Fetch)), "sequential ranks only send");
    assert!(of(1).any(|r| r.op() == Some(TraceOp::Fetch)));
    let alone = generated(&Options { patterns: vec![Pattern::Sequential], processes: 1, ..options });
    let pages = |records: Vec<&TraceRecord>| -> BTreeSet<_> {
        records.iter().map(|r| (r.node.get(), r.address.get())).collect()
    };
    assert_eq!(pages(of(0).collect()), pages(alone.iter().collect()));
}

#[test]
fn scattered_ranks_have_memory_of_their_own() {
    let options = Options { scatter: true, ..small(&[Pattern::Sequential]) };
    let exports: BTreeSet<_> =
        generated(&options).iter().filter(|r| r.op() == Some(TraceOp::Export)).map(|r| r.address.get()).collect();
    assert_eq!(exports.len(), 6);
    assert!(exports.iter().all(|a| a.is_multiple_of(4096)));
}

#[test]
fn the_command_names_every_option() {
    let options = Options { scatter: true, ..small(&[Pattern::Zipf]) };
    assert_eq!(
        options.command().join(" "),
        "mapwire lab generate zipf --records 20000 --nodes 3 --processes 2 --seed 9 --buffer 262144 --bytes 4096 --stride 16 \
         --skew 0.99 --gap 10000 --scatter"
    );
    let mix = small(&[Pattern::Zipf, Pattern::Transpose]);
    assert!(mix.command().join(" ").contains("generate --mix zipf,transpose --records"));
}

#[test]
fn options_that_cannot_be_are_refused_by_name() {
    let good = small(&[Pattern::Zipf]);
    for (options, says) in [
        (Options { records: 0, ..good.clone() }, "--records is 0"),
        (Options { nodes: 0, ..good.clone() }, "--nodes is 0"),
        (Options { processes: 0, ..good.clone() }, "--processes is 0"),
        (Options { nodes: 60_000, processes: 60_000, ..good.clone() }, "is 3600000000"),
        (small(&[Pattern::Zipf; 3]), "3 patterns for 2 processes"),
        (Options { piece_bytes: 0, ..good.clone() }, "--bytes is 0"),
        (Options { piece_bytes: 65 * 4096, ..good.clone() }, "--bytes is 266240"),
        (Options { buffer_bytes: 2 << 40, ..good.clone() }, "--buffer is"),
        (Options { stride: 0, ..good.clone() }, "--stride is 0"),
        (Options { skew: f64::NAN, ..good.clone() }, "--skew is NaN"),
        (Options { gap_ns: 0, ..good.clone() }, "--gap is 0"),
    ] {
        let error = Generator::new(&options).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(good.check().is_ok());
}
