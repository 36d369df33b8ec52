//! Links in virtual time: two ends, and lines between them that lose, repeat, reorder and delay.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use std::println;

use mapwire_wire::link::{LINK_HEADER_BYTES, LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES};

use super::*;

/// A packet of 8 KB behind its header and that of the link.
const PAYLOAD_BYTES: u64 = 8192;
const DATAGRAM_BYTES: u32 = PAYLOAD_BYTES as u32 + 48 + LINK_HEADER_BYTES as u32;
/// Latency in one direction.
const LATENCY_NS: u64 = 10_000;

/// Seeds of the test of goodput, for each share of losses.
const SEEDS: u64 = 64;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn is(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// What the lines do to datagrams, in percent, and by how much they delay.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    drop: u64,
    repeat: u64,
    delay: u64,
    delay_ns: u64,
    /// Number of the path that carries nothing.
    dead_path: Option<u8>,
    /// Percentage of due packets that a receiver drops.
    refuse: u64,
    /// How often, and for how long, an end does nothing because its processor is taken away. Arrivals wait.
    pause_every_ns: u64,
    pause_ns: u64,
}

/// One end: its link, and the packets that are not over.
struct End {
    link: Link<u64>,
    first: u32,
    queue: VecDeque<u64>,
    over: u64,
    got: Vec<u64>,
    events: Vec<LinkEvent>,
    /// Whether it has dropped a packet that it could not take.
    refused: bool,
    line_free_ns: u64,
    transmitted: u64,
    /// Time until which it does nothing.
    paused_until_ns: u64,
}

impl End {
    fn new(config: LinkConfig, first: u32) -> Self {
        Self {
            link: Link::with_first_sequence(config, first),
            first,
            queue: VecDeque::new(),
            over: 0,
            got: Vec::new(),
            events: Vec::new(),
            refused: false,
            line_free_ns: 0,
            transmitted: 0,
            paused_until_ns: 0,
        }
    }

    fn drain(&mut self) {
        while let Some(item) = self.link.poll_kept() {
            self.got.push(item);
        }
        for _ in 0..self.link.poll_over() {
            self.queue.pop_front().expect("only what was sent is over");
            self.over += 1;
        }
        while let Some(event) = self.link.poll_event() {
            if event == LinkEvent::Restarted {
                self.queue.clear();
                self.over = 0;
            }
            self.events.push(event);
        }
    }

    fn waiting(&self) -> Option<u32> {
        (self.queue.len() > self.link.unacked() as usize).then_some(DATAGRAM_BYTES)
    }
}

struct World {
    now_ns: u64,
    ends: [End; 2],
    under_way: BTreeMap<(u64, u64), (usize, Datagram, LinkAck, u64)>,
    count: u64,
    rules: Rules,
    random: Random,
}

fn config(epoch: u64) -> LinkConfig {
    LinkConfig::new(epoch, DATAGRAM_BYTES)
}

impl World {
    fn new(seed: u64, rules: Rules) -> Self {
        Self::with(seed, rules, 0, config)
    }

    fn with(seed: u64, rules: Rules, first: u32, config: fn(u64) -> LinkConfig) -> Self {
        Self {
            now_ns: 1_000,
            ends: [1001, 1002].map(|epoch| End::new(config(epoch), first)),
            under_way: BTreeMap::new(),
            count: 0,
            rules,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        }
    }

    fn send(&mut self, end: usize, items: Range<u64>) {
        self.ends[end].queue.extend(items);
    }

    /// Datagrams go through their bytes.
    fn transmit(&mut self, end: usize, datagram: Datagram) {
        let (header, rest) = {
            let bytes = datagram.header.emit();
            let (header, rest) = LinkHeader::parse(&bytes).unwrap();
            (header, rest.len())
        };
        assert_eq!((header, rest), (datagram.header, 0));
        let from = &mut self.ends[end];
        let ack = *from.link.ack();
        let (bytes, item) = match datagram.body {
            Body::None => (LINK_HEADER_BYTES as u64, 0),
            Body::Ack => {
                let mut bytes = [0; MAX_ACK_BYTES];
                let length = ack.emit(&mut bytes);
                assert_eq!(LinkAck::parse(&bytes[..length]), Ok(ack));
                ((LINK_HEADER_BYTES + length) as u64, 0)
            }
            Body::Packet { sequence, .. } => {
                let base = from.first.wrapping_add(from.over as u32);
                let at = sequence.wrapping_sub(base) as usize;
                (u64::from(DATAGRAM_BYTES), from.queue[at])
            }
        };
        from.transmitted += 1;
        // 10 Gb/s: 0.8 ns a byte.
        from.line_free_ns = self.now_ns + bytes * 8 / 10;
        let out_ns = from.line_free_ns;
        let rules = self.rules;
        if rules.dead_path == Some(datagram.header.path) {
            return;
        }
        for _ in 0..1 + u64::from(self.random.is(rules.repeat)) {
            if self.random.is(rules.drop) {
                continue;
            }
            let late_ns = match self.random.is(rules.delay) {
                true => self.random.next() % rules.delay_ns,
                false => 0,
            };
            self.count += 1;
            self.under_way.insert((out_ns + LATENCY_NS + late_ns, self.count), (1 - end, datagram, ack, item));
        }
    }

    fn deliver(&mut self, to: usize, datagram: Datagram, ack: &LinkAck, item: u64) -> Result<(), Ignored> {
        let received = match datagram.body {
            Body::None => Received::None,
            Body::Ack => Received::Ack(ack),
            Body::Packet { .. } => Received::Packet,
        };
        let end = &mut self.ends[to];
        let header = &datagram.header;
        let arrival = end.link.handle_datagram(self.now_ns, header, received);
        match arrival {
            Ok(Some(Arrival::Next)) if self.random.is(self.rules.refuse) => end.refused = true,
            Ok(Some(Arrival::Next)) => {
                end.link.handle_taken(self.now_ns, header);
                end.got.push(item);
            }
            Ok(Some(Arrival::Early)) => end.link.keep(self.now_ns, header, item),
            _ => {}
        }
        if end.refused && self.random.is(50) {
            end.refused = false;
            end.link.ask_again();
        }
        end.drain();
        arrival.map(|_| ())
    }

    /// One step; false if nothing is left to do.
    fn step(&mut self) -> bool {
        for end in 0..2 {
            if self.pauses(end) {
                continue;
            }
            while self.ends[end].line_free_ns <= self.now_ns {
                let waiting = self.ends[end].waiting();
                let Some(datagram) = self.ends[end].link.poll(self.now_ns, waiting) else {
                    break;
                };
                self.transmit(end, datagram);
            }
        }
        let of_end = |end: &End| match end.line_free_ns > self.now_ns {
            _ if end.paused_until_ns > self.now_ns => Some(end.paused_until_ns),
            true => Some(end.line_free_ns),
            false => end.link.poll_at(),
        };
        let arrives = self.under_way.iter().map(|(key, (to, ..))| {
            let paused_ns = self.ends[*to].paused_until_ns;
            key.0.max(paused_ns)
        });
        let arrives = match self.rules.pause_ns {
            0 => self.under_way.keys().next().map(|key| key.0),
            _ => arrives.min(),
        };
        let times = [arrives, of_end(&self.ends[0]), of_end(&self.ends[1])];
        let Some(next_ns) = times.into_iter().flatten().min() else {
            return false;
        };
        self.now_ns = next_ns.max(self.now_ns + 1);
        let paused = [self.pauses(0), self.pauses(1)];
        let come = self.under_way.range(..(self.now_ns + 1, 0));
        let come = come.filter(|(_, (to, ..))| !paused[*to]);
        for key in come.map(|(key, _)| *key).collect::<Vec<_>>() {
            let (to, datagram, ack, item) = self.under_way.remove(&key).unwrap();
            let _ = self.deliver(to, datagram, &ack, item);
        }
        for (end, _) in (self.ends.iter_mut().zip(paused)).filter(|(_, paused)| !paused) {
            end.link.handle_time(self.now_ns);
            end.drain();
        }
        true
    }

    /// Whether the processor of an end is away; may take it away now.
    fn pauses(&mut self, end: usize) -> bool {
        let Rules { pause_every_ns, pause_ns, .. } = self.rules;
        // The ends are away at different times.
        let phase_ns = (self.now_ns + end as u64 * pause_every_ns / 2).checked_rem(pause_every_ns).unwrap_or(u64::MAX);
        let end = &mut self.ends[end];
        if end.paused_until_ns <= self.now_ns && phase_ns < pause_ns {
            end.paused_until_ns = self.now_ns + pause_ns - phase_ns;
        }
        end.paused_until_ns > self.now_ns
    }

    fn run(&mut self, steps: u64, until: impl Fn(&Self) -> bool) {
        for _ in 0..steps {
            if until(self) || !self.step() {
                break;
            }
        }
    }

    fn run_until_over(&mut self) {
        self.run(3_000_000, |world| world.ends.iter().all(|end| end.queue.is_empty()));
    }
}

#[test]
fn each_packet_comes_once_and_in_order_whatever_the_lines_do() {
    for seed in 0..300 {
        let mut draw = Random(seed * 7919 + 1);
        let rules = Rules {
            drop: draw.next() % 40,
            repeat: draw.next() % 30,
            delay: draw.next() % 40,
            delay_ns: 1 + draw.next() % 300_000,
            dead_path: None,
            refuse: draw.next() % 20,
            ..Rules::default()
        };
        // A third of the seeds passes the end of the sequence numbers.
        let first = if seed % 3 == 0 { u32::MAX - 70 } else { 0 };
        let mut world = World::with(seed, rules, first, config);
        world.send(0, 0..200);
        world.send(1, 0..draw.next() % 200);
        let wanted = [world.ends[1].queue.len() as u64, 200];
        world.run(2_000 + draw.next() % 2_000, |_| false);
        for end in &world.ends {
            let in_order = (0..).zip(&end.got).all(|(at, item)| at == *item);
            assert!(in_order, "seed {seed}, {rules:?}");
        }
        world.rules = Rules::default();
        world.run_until_over();
        for (end, wanted) in world.ends.iter().zip(wanted) {
            assert!(end.got.iter().copied().eq(0..wanted), "seed {seed}, {rules:?}");
            assert!(end.queue.is_empty(), "seed {seed}, {rules:?}");
            assert_eq!(end.events, [LinkEvent::Up], "seed {seed}, {rules:?}");
        }
    }
}

#[test]
fn goodput_of_a_10_gigabit_line_under_loss() {
    for (drop, least_percent) in [(0, 95.0), (1, 80.0), (5, 50.0), (30, 10.0)] {
        let (mut worst, mut worst_seed) = (f64::MAX, 0);
        let mut sum = 0.0;
        for seed in 0..SEEDS {
            let rules = Rules { drop, ..Rules::default() };
            let mut world = World::new(seed, rules);
            world.send(0, 0..2000);
            world.run_until_over();
            assert!(world.ends[0].queue.is_empty(), "{drop} % loss, seed {seed}");
            let line_ns = 2000 * PAYLOAD_BYTES * 8 / 10;
            let percent = 100.0 * line_ns as f64 / (world.now_ns - 1_000) as f64;
            if percent < worst {
                (worst, worst_seed) = (percent, seed);
            }
            sum += percent;
        }
        println!("{drop} % loss: worst {worst:.1} %, mean {:.1} % of the line", sum / SEEDS as f64);
        assert!(worst >= least_percent, "{drop} % loss, seed {worst_seed}: {worst:.1} %");
    }
}

#[test]
fn an_end_whose_processor_is_often_taken_away_is_sent_nearly_nothing_twice() {
    for (seed, pause_ns) in [(1, 300_000), (2, 1_000_000), (3, 3_000_000)] {
        let rules = Rules { pause_every_ns: 20_000_000, pause_ns, ..Rules::default() };
        let mut world = World::new(seed, rules);
        // Packets one by one, as programs send that wait for each other; the pauses meet some of them.
        for item in 0..4000 {
            world.send(0, item..item + 1);
            world.run_until_over();
            world.now_ns += 40_000 + world.random.next() % 100_000;
        }
        let counters = world.ends[0].link.stats().counters;
        println!("{pause_ns} ns away: {counters:?}");
        assert_eq!(world.ends[1].got.len(), 4000);
        assert!(counters.resent <= 16, "{counters:?}");
        assert!(counters.spurious > 0, "{counters:?}");
    }
}

/// A link that heard nothing of its three packets for `timeouts` timeouts; the number of the last packet and of the peer's next
/// datagram; and the time.
fn up_with_late_answers(timeouts: u64) -> (Link<u64>, u64, u64, u64) {
    let mut link = up_with_three_out();
    // The first of the peer's datagrams; earlier ones are unknown.
    hear(&mut link, 20, 5, 0, Received::Packet);
    let mut now_ns = 20;
    while link.stats().counters.timeouts < timeouts {
        now_ns = link.poll_at().unwrap();
        link.handle_time(now_ns);
        while link.poll(now_ns, None).is_some() {}
    }
    (link, 4, 6, now_ns)
}

/// Datagram `number` of the peer comes, which expects packet `expected`.
fn hear(link: &mut Link<u64>, now_ns: u64, number: u64, expected: u32, received: Received<'_>) {
    let kind = match received {
        Received::Packet => LinkKind::Data,
        _ => LinkKind::Ack,
    };
    let header = LinkHeader { kind, expected, ..welcome(number) };
    link.handle_datagram(now_ns, &header, received).unwrap();
}

#[test]
fn a_timeout_that_was_too_early_leaves_the_window_as_it_was() {
    let (mut link, last, heard, now_ns) = up_with_late_answers(3);
    let before = up_with_three_out().stats().window_bytes;
    assert!(link.stats().window_bytes < before);
    // The first transmissions have arrived; the ack says nothing of the probes.
    let ack = LinkAck::new(0, [(2, last)]).unwrap();
    hear(&mut link, now_ns + 1, heard, 3, Received::Ack(&ack));
    let stats = link.stats();
    assert_eq!((stats.window_bytes, stats.counters.spurious), (before, 1));
    assert!(stats.timeout_ns >= now_ns / 2, "{stats:?}");
}

#[test]
fn a_probe_was_sent_in_vain_if_what_it_repeats_has_come_and_no_answer_was_lost() {
    let (_, last, heard, _) = up_with_late_answers(1);
    // What an ack of the probe names, the number of the answer, and whether timers wait for longer from here on.
    for (first, answer, in_vain) in [(last, heard, true), (last + 1, heard, false), (last, heard + 1, false)] {
        for carried in [false, true] {
            let (mut link, .., now_ns) = up_with_late_answers(1);
            let before = link.stats();
            let (mut number, mut at_ns) = (answer, now_ns + 1_000_000);
            if carried {
                hear(&mut link, at_ns, number, 3, Received::Packet);
                assert_eq!((link.unacked(), link.stats().counters.spurious), (0, 0));
                (number, at_ns) = (number + 1, at_ns + 1_000_000);
            }
            let ack = LinkAck::new(0, [(first, last + 1)]).unwrap();
            hear(&mut link, at_ns, number, 3, Received::Ack(&ack));
            let stats = link.stats();
            let case = (first, answer, carried);
            assert_eq!(stats.counters.spurious, u64::from(in_vain), "{case:?}");
            if in_vain {
                let late_ns = now_ns + 1_000_000;
                assert!(stats.timeout_ns > late_ns.max(before.timeout_ns), "{case:?}");
            }
        }
    }
}

#[test]
fn the_first_timeout_sends_one_packet_and_later_ones_two() {
    for (timeouts, resent) in [(1, 1), (2, 3), (3, 5)] {
        let (link, ..) = up_with_late_answers(timeouts);
        assert_eq!(link.stats().counters.resent, resent);
    }
}

#[test]
fn a_path_that_dies_is_left_and_all_arrives() {
    let two_paths = |epoch| LinkConfig { paths: 2, ..config(epoch) };
    for seed in 0..20 {
        let mut world = World::with(seed, Rules::default(), 0, two_paths);
        world.send(0, 0..300);
        world.run(200 + 10 * seed, |_| false);
        world.rules.dead_path = Some(0);
        world.run_until_over();
        assert!(world.ends[1].got.iter().copied().eq(0..300), "seed {seed}");
        let changed = world.ends[0].events.iter();
        let changed = changed.filter(|event| matches!(event, LinkEvent::PathChanged(1)));
        assert_eq!(changed.count(), 1, "seed {seed}");
    }
}

#[test]
fn a_peer_that_is_silent_on_all_paths_is_dead_after_the_stated_time_and_told_once() {
    for paths in [1, 3] {
        for established in [false, true] {
            let mut world = World::new(1, Rules::default());
            world.ends[0] = End::new(LinkConfig { paths, ..config(1001) }, 0);
            world.send(0, 0..10);
            if established {
                world.run_until_over();
                world.send(0, 10..20);
            }
            let begin_ns = world.now_ns;
            world.rules.drop = 100;
            world.run(1_000_000, |world| world.ends[0].events.contains(&LinkEvent::Dead));
            let took_ns = world.now_ns - begin_ns;
            assert!((10_000_000_000..10_100_000_000).contains(&took_ns), "{took_ns}");
            world.run(1_000, |_| false);
            let end = &mut world.ends[0];
            let deaths = end.events.iter().filter(|event| **event == LinkEvent::Dead);
            assert_eq!(deaths.count(), 1);
            assert_eq!(end.link.poll(u64::MAX, Some(DATAGRAM_BYTES)), None);
            assert_eq!((end.link.poll_at(), end.link.is_idle()), (None, true));
        }
    }
}

#[test]
fn a_peer_that_restarts_is_told_once_and_gets_nothing_of_what_was_meant_for_its_former_self() {
    for seed in 0..60 {
        let rules = Rules {
            drop: seed % 20,
            repeat: 20,
            delay: 30,
            delay_ns: 2_000_000,
            dead_path: None,
            refuse: 10,
            ..Rules::default()
        };
        let mut world = World::new(seed, rules);
        world.send(0, 0..100);
        world.send(1, 0..100);
        world.run(300 + seed * 5, |_| false);
        if world.ends[0].events != [LinkEvent::Up] {
            continue;
        }
        // Datagrams of its former self stay under way.
        world.ends[1] = End::new(config(2002), 0);
        world.ends[0].got.clear();
        world.send(1, 5000..5100);
        world.run(3_000_000, |world| world.ends[0].events.len() > 1);
        assert_eq!(world.ends[0].events, [LinkEvent::Up, LinkEvent::Restarted], "seed {seed}");
        world.send(0, 7000..7100);
        world.run_until_over();
        assert!(world.ends[1].got.iter().copied().eq(7000..7100), "seed {seed}");
        let got = &world.ends[0].got;
        let new = got.iter().position(|item| *item >= 5000).unwrap();
        assert!(got[new..].iter().copied().eq(5000..5100), "seed {seed}");
        assert_eq!(world.ends[1].events, [LinkEvent::Up], "seed {seed}");
    }
}

#[test]
fn what_was_taken_of_a_peer_before_its_link_was_closed_is_acked_when_it_is_repeated() {
    let mut world = World::new(1, Rules::default());
    world.send(0, 0..3);
    world.run_until_over();
    world.send(0, 3..4);
    // The receiver takes the peer's farewell, and its ack of that is lost.
    world.run(10_000, |world| world.ends[1].got.len() == 4);
    world.under_way.clear();
    world.ends[1].link.close();
    world.rules.drop = 0;
    world.run_until_over();
    assert_eq!(world.ends[0].over, 4);
    assert_eq!(world.ends[1].got, [0, 1, 2, 3]);
    // What it has not taken is not acked.
    world.send(0, 4..5);
    world.run(1_000, |world| world.ends[0].over == 5);
    assert_eq!((world.ends[0].over, world.ends[1].got.len()), (4, 4));
}

#[test]
fn early_packets_of_a_peer_are_forgotten_as_its_link_is_closed_and_not_acked_when_they_are_repeated() {
    let mut link = up_with_three_out();
    let early = |number| LinkHeader { kind: LinkKind::Data, number, sequence: 1, ..welcome(number) };
    let now_ns = 1_000_000;
    let arrival = link.handle_datagram(now_ns, &early(1), Received::Packet);
    assert_eq!(arrival, Ok(Some(Arrival::Early)));
    link.keep(now_ns, &early(1), 77);
    assert!(!link.is_idle());
    link.close();
    assert!(link.is_idle());
    // The ack owed since the packet was kept leaves; the packet's repetition makes no other due.
    let late_ns = now_ns + 1_000_000_000;
    while link.poll(late_ns, None).is_some() {}
    let ignored = link.handle_datagram(late_ns, &early(2), Received::Packet);
    assert_eq!(ignored, Err(Ignored::Dead));
    assert!(link.poll(2 * late_ns, None).is_none());
}

#[test]
fn a_peer_that_was_declared_dead_is_heard_again_only_as_another_incarnation() {
    let mut world = World::new(3, Rules::default());
    world.send(0, 0..10);
    world.run_until_over();
    world.ends[0].link.close();
    // Its former incarnation does not know of that, and is answered by silence.
    world.send(1, 0..10);
    world.run(1_000, |_| false);
    assert_eq!(world.ends[0].got, []);
    assert_eq!(world.ends[0].events, [LinkEvent::Up]);
    world.ends[1] = End::new(config(2002), 0);
    world.send(1, 50..60);
    world.run(1_000_000, |world| world.ends[0].events.len() > 1);
    assert_eq!(world.ends[0].events, [LinkEvent::Up, LinkEvent::Restarted]);
    world.send(0, 70..80);
    world.run_until_over();
    assert!(world.ends[0].got.iter().copied().eq(50..60));
    assert!(world.ends[1].got.iter().copied().eq(70..80));
}

#[test]
fn a_peer_of_whom_something_is_awaited_is_asked_for_signs_of_life_and_one_of_whom_nothing_is_not() {
    for is_awaiting in [false, true] {
        let mut world = World::new(4, Rules::default());
        world.send(0, 0..10);
        world.run_until_over();
        world.run(1_000, |_| false);
        world.ends[0].link.set_awaiting(is_awaiting);
        assert!(world.ends[0].link.poll(world.now_ns, None).is_none());
        // The peer lives, and nothing is lost.
        let before = world.ends[0].transmitted;
        world.run(400, |_| false);
        let asked = world.ends[0].transmitted - before;
        assert_eq!(asked > 10, is_awaiting, "{asked}");
        assert_eq!(world.ends[0].events, [LinkEvent::Up]);
        // The peer has restarted, and says nothing by itself.
        world.ends[1] = End::new(config(2002), 0);
        world.run(400, |world| world.ends[0].events.len() > 1);
        let restarted = world.ends[0].events.contains(&LinkEvent::Restarted);
        assert_eq!(restarted, is_awaiting);
    }
}

/// What a peer of epoch 7 answers to a challenge of one of epoch 5.
const fn welcome(challenge: u64) -> LinkHeader {
    LinkHeader {
        kind: LinkKind::Welcome,
        path: 0,
        expected: 0,
        epoch: 7,
        peer_epoch: 5,
        number: challenge,
        sequence: 0,
    }
}

/// A link whose peer has epoch 7 and has acked nothing of three packets.
fn up_with_three_out() -> Link<u64> {
    let mut link = Link::new(config(5));
    let hello = link.poll(0, Some(100)).unwrap();
    assert_eq!(hello.header.kind, LinkKind::Hello);
    let welcome = welcome(hello.header.number);
    link.handle_datagram(10, &welcome, Received::None).unwrap();
    for _ in 0..3 {
        assert!(link.poll(10, Some(100)).is_some());
    }
    link
}

#[test]
fn random_datagrams_of_the_peer_never_finish_what_was_not_sent_nor_take_memory_without_bound() {
    for seed in 0..200 {
        let mut random = Random(seed * 31 + 1);
        let mut link = up_with_three_out();
        let mut over = 0;
        let mut now_ns = 10;
        let mut last_challenge = 0;
        for _ in 0..2000 {
            now_ns += random.next() % 100_000;
            let odd = |random: &mut Random| match random.next() % 4 {
                0 => random.next() << 16 | random.next(),
                1 => u64::MAX - random.next() % 3,
                _ => random.next() % 8,
            };
            let ack;
            let received = match random.next() % 4 {
                0 => Received::None,
                1 => {
                    let (a, b) = (odd(&mut random), odd(&mut random));
                    match LinkAck::new(odd(&mut random) as u32, [(a.min(b), a.max(b))]) {
                        Ok(made) => ack = made,
                        Err(_) => continue,
                    }
                    Received::Ack(&ack)
                }
                _ => Received::Packet,
            };
            let header = LinkHeader {
                kind: match (received, random.next() % 3) {
                    (Received::None, 0) => LinkKind::Hello,
                    (Received::None, 1) => LinkKind::Again,
                    (Received::None, _) => LinkKind::Welcome,
                    (Received::Ack(_), _) => LinkKind::Ack,
                    (Received::Packet, _) => LinkKind::Data,
                },
                path: odd(&mut random) as u8,
                expected: odd(&mut random) as u32,
                epoch: if random.is(80) { 7 } else { odd(&mut random) },
                peer_epoch: if random.is(80) { 5 } else { odd(&mut random) },
                number: odd(&mut random),
                sequence: odd(&mut random) as u32,
            };
            if header.kind == LinkKind::Welcome && header.number <= last_challenge {
                // It may be an answer.
                continue;
            }
            match link.handle_datagram(now_ns, &header, received) {
                Ok(Some(Arrival::Next)) => link.handle_taken(now_ns, &header),
                Ok(Some(Arrival::Early)) => link.keep(now_ns, &header, 0),
                _ => {}
            }
            link.handle_time(now_ns);
            while let Some(datagram) = link.poll(now_ns, None) {
                if datagram.header.kind == LinkKind::Hello {
                    last_challenge = datagram.header.number;
                }
            }
            while link.poll_kept().is_some() {}
            over += link.poll_over();
            assert!(over <= 3, "seed {seed}");
            let up_only = core::iter::from_fn(|| link.poll_event()).all(|event| event == LinkEvent::Up);
            assert!(up_only, "seed {seed}: no guess is the answer to a challenge");
        }
    }
}

#[test]
fn epochs_that_flip_at_each_packet_change_nothing_and_cost_few_challenges() {
    let mut link = up_with_three_out();
    let mut hellos = 0;
    for at in 0..100_000u64 {
        let now_ns = 20 + at * 100;
        let header = LinkHeader {
            kind: LinkKind::Data,
            path: 0,
            expected: 3,
            epoch: 100 + at,
            peer_epoch: 5,
            number: at,
            sequence: 0,
        };
        let ignored = link.handle_datagram(now_ns, &header, Received::Packet);
        assert_eq!(ignored, Err(Ignored::UnknownEpoch));
        while let Some(datagram) = link.poll(now_ns, None) {
            hellos += u64::from(datagram.header.kind == LinkKind::Hello);
        }
    }
    // In 10 ms, with a first interval of 100 µs that doubles.
    assert!(hellos <= 30, "{hellos}");
    assert_eq!((link.poll_over(), link.unacked()), (0, 3));
    assert_eq!(link.poll_event(), Some(LinkEvent::Up));
    assert_eq!(link.poll_event(), None);
}

#[test]
fn an_idle_link_takes_no_memory_of_its_own_and_awaits_nothing() {
    let link = Link::<u64>::new(config(1));
    assert_eq!(link.poll_at(), None);
    assert!(size_of::<Link<u64>>() <= 1024, "{}", size_of::<Link<u64>>());
}

#[test]
fn a_peer_whose_answers_take_longer_than_the_time_between_challenges_is_known_all_the_same() {
    for latency_ns in [1_000_000, 30_000_000] {
        let mut link = Link::<u64>::new(config(5));
        let (mut now_ns, mut under_way) = (0, VecDeque::new());
        while now_ns < 200_000_000 && link.poll_event() != Some(LinkEvent::Up) {
            link.handle_time(now_ns);
            while let Some(hello) = link.poll(now_ns, Some(100)) {
                if hello.header.kind == LinkKind::Hello {
                    under_way.push_back((now_ns + 2 * latency_ns, hello.header.number));
                }
            }
            while under_way.front().is_some_and(|(at, _)| *at <= now_ns) {
                let (_, number) = under_way.pop_front().unwrap();
                let _ = link.handle_datagram(now_ns, &welcome(number), Received::None);
            }
            now_ns += 50_000;
        }
        assert!(now_ns <= 2 * latency_ns + 100_000, "{now_ns}");
    }
}

#[test]
fn a_node_that_was_stopped_hears_its_peers_before_it_takes_them_for_dead() {
    const STOPPED_NS: u64 = 60_000_000_000;
    let ack = LinkAck::new(0, [(2, 4)]).unwrap();
    let ack = Received::Ack(&ack);
    let header = LinkHeader { kind: LinkKind::Ack, expected: 3, ..welcome(9) };
    // The peer lives, and its answer waits behind the timer.
    let mut link = up_with_three_out();
    link.handle_time(STOPPED_NS);
    assert_eq!(link.handle_datagram(STOPPED_NS, &header, ack), Ok(None));
    assert_eq!((link.poll_over(), link.poll_event()), (3, Some(LinkEvent::Up)));
    assert_eq!(link.poll_event(), None);
    // The peer is silent: it is asked, and then dead, slightly later.
    let mut link = up_with_three_out();
    let (mut now_ns, mut asked) = (STOPPED_NS, 0);
    while !core::iter::from_fn(|| link.poll_event()).any(|event| event == LinkEvent::Dead) {
        link.handle_time(now_ns);
        asked += core::iter::from_fn(|| link.poll(now_ns, None)).count();
        now_ns = link.poll_at().map_or(now_ns, |at| at.max(now_ns + 1));
    }
    assert!(asked > 10 && now_ns - STOPPED_NS < 2_000_000_000, "{asked} {now_ns}");
    // A node that polls its links seldom learns of it as well.
    let mut link = up_with_three_out();
    link.handle_time(STOPPED_NS);
    link.handle_time(2 * STOPPED_NS);
    assert!(core::iter::from_fn(|| link.poll_event()).any(|event| event == LinkEvent::Dead));
}

#[test]
fn a_peer_that_is_silent_is_asked_and_probed_ever_more_seldom() {
    const SECOND_NS: u64 = 1_000_000_000;
    let unknown = Link::<u64>::new(config(5));
    for (mut link, waiting, kind) in
        [(unknown, Some(100), LinkKind::Hello), (up_with_three_out(), None, LinkKind::Data)]
    {
        let (mut now_ns, mut sent) = (20, 0);
        while now_ns < SECOND_NS {
            link.handle_time(now_ns);
            while let Some(datagram) = link.poll(now_ns, waiting) {
                sent += u32::from(datagram.header.kind == kind);
            }
            now_ns = link.poll_at().map_or(SECOND_NS, |at| at.max(now_ns + 1));
        }
        assert!((20..=70).contains(&sent), "{kind:?} {sent}");
    }
}
