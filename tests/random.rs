//! Choices of a test: drawn from a seed, or steered by bytes, as a fuzzer wants them.

/// A source of choices that its seed, or its bytes, repeat.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    /// State of SplitMix64.
    state: u64,
    /// What is left of the bytes that steer it.
    bytes: std::vec::IntoIter<u8>,
}

#[allow(dead_code, reason = "each test uses some of it")]
impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, bytes: Vec::new().into_iter() }
    }

    /// Draws from `bytes` as long as there are any, and from a fixed seed after.
    pub(crate) fn steered(bytes: &[u8]) -> Self {
        Self { state: 0, bytes: Vec::from(bytes).into_iter() }
    }

    /// Whether no bytes are left that steer it.
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes.as_slice().is_empty()
    }

    #[allow(clippy::should_implement_trait)]
    pub(crate) fn next(&mut self) -> u64 {
        self.draw(8)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.draw(1) as u8
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let bits = u64::BITS - (end - 1).leading_zeros();
        self.draw(bits.div_ceil(8)) % end
    }

    /// From `start` to `end`, both included.
    pub(crate) fn within(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start + 1)
    }

    /// True `percent` times in 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number of `count` bytes if bytes steer it, else of 8.
    fn draw(&mut self, count: u32) -> u64 {
        if self.is_spent() {
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = self.state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            return mixed ^ (mixed >> 31);
        }
        (0..count).fold(0, |number, _| number << 8 | u64::from(self.bytes.next().unwrap_or(0)))
    }
}
