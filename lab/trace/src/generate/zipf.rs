//! Zipf's law: the k-th most popular of n things is drawn with a probability in proportion to 1 ÷ kˢ.

use super::random::Random;

/// Draws by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): in constant time and memory for any n. The
/// functions are those of `libm`, which give the same bits on every computer.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    things: f64,
    skew: f64,
    first: f64,
    last: f64,
    /// Below this distance a draw is accepted without computing its probability.
    sure: f64,
}

impl Zipf {
    /// `things` is at least 1; `skew` is above 0 and finite.
    pub(super) fn new(things: u64, skew: f64) -> Self {
        let mut zipf = Self { things: things as f64, skew, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.things + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// x⁻ˢ.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.skew * libm::log(x))
    }

    /// Its integral from 1 to x.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.skew) * log;
        // (eᵗ - 1) ÷ t, which is 1 at 0.
        let ratio = if t.abs() > 1e-8 { libm::expm1(t) / t } else { 1.0 + t / 2.0 };
        ratio * log
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.skew)).max(-1.0);
        let ratio = if t.abs() > 1e-8 { libm::log1p(t) / t } else { 1.0 - t / 2.0 };
        libm::exp(ratio * y)
    }

    /// The place of the thing drawn, by popularity: 0 is the most popular.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let y = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(y);
            let k = (x + 0.5).floor().clamp(1.0, self.things);
            if k - x <= self.sure || y >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_law() {
        for (things, skew) in [(1, 1.0), (2, 0.5), (10, 1.0), (50, 0.8), (50, 2.0), (1000, 0.01)] {
            let zipf = Zipf::new(things, skew);
            let mut random = Random::new(5, things);
            let mut counts = vec![0_u32; things as usize];
            let draws = 200_000;
            for _ in 0..draws {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |k: usize| ((k + 1) as f64).powf(-skew);
            let total: f64 = (0..things as usize).map(weight).sum();
            for (k, count) in counts.iter().enumerate() {
                let expected = weight(k) / total * f64::from(draws);
                // Six standard deviations.
                let bound = 6.0 * expected.sqrt() + 1.0;
                let off = (f64::from(*count) - expected).abs();
                assert!(off < bound, "n={things} s={skew} k={k}: {count}, not {expected:.1}");
            }
        }
    }

    #[test]
    fn draws_of_very_many_things_stay_among_them() {
        let zipf = Zipf::new(1 << 50, 0.99);
        let mut random = Random::new(1, 1);
        let most = (0..10_000).map(|_| zipf.draw(&mut random)).max().unwrap();
        assert!((1 << 40..1 << 50).contains(&most), "{most}");
    }
}
