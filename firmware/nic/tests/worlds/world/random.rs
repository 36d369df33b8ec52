//! Random numbers that a seed repeats.

#[path = "../../../../../tests/random.rs"]
mod source;

pub(crate) use source::Random;

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
#[cfg(test)]
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
