//! Random numbers that a seed repeats.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[allow(clippy::should_implement_trait)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From `start` to `end`, both included.
    pub(crate) fn within(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start + 1)
    }

    /// True `percent` times in 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with MAPWIRE_SEED={}", self.0);
        }
    }
}

/// Runs `test` with `rounds` seeds that differ from run to run. MAPWIRE_SEED repeats one, MAPWIRE_ROUNDS draws more.
pub(crate) fn for_seeds(rounds: u64, mut test: impl FnMut(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("MAPWIRE_SEED") {
        let _seed = Seed(seed);
        return test(seed);
    }
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = since_1970.map_or(1, |time| time.as_nanos() as u64);
    let rounds = number("MAPWIRE_ROUNDS").unwrap_or(rounds);
    eprintln!("{rounds} seeds from {start}");
    for round in 0..rounds {
        let seed = Seed(start.wrapping_add(round));
        test(seed.0);
    }
}
