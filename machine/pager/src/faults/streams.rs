//! Detects the stride at which a program walks through a region, and decides how far to read ahead.
//!
//! Two faults on neighbouring pages, or three at one other distance, begin a stream. Each fault on the page right after a stream's window
//! doubles the window. Pages brought and evicted unused halve the largest window allowed.

/// Most streams followed at once in a region.
const STREAMS: usize = 8;
/// Largest stride, in pages.
const MAX_STRIDE: u64 = 64;
/// Window of a new stream.
const FIRST_WINDOW: u32 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Page of the last fault.
    last: u64,
    /// Pages from one access to the next; 0 before the second fault.
    stride: i64,
    /// The page after the window: a fault there shows that the window was used.
    next: u64,
    /// Pages brought ahead at the last fault; 0 while the stride is uncertain.
    window: u32,
    /// When it was last used, in faults; 0 for never.
    used: u64,
}

/// A fault's prediction of the next pages, and its evidence about those before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// Pages from one access to the next.
    pub(crate) stride: i64,
    /// Number of pages to bring besides the one that faulted.
    pub(crate) ahead: usize,
    /// Number of pages right before the one that faulted that were brought ahead and then used.
    pub(crate) behind: usize,
    stream: usize,
}

impl Prediction {
    /// The page `steps` strides from `page`; `None` on overflow.
    pub(crate) fn page(&self, page: u64, steps: i64) -> Option<u64> {
        page.checked_add_signed(self.stride.checked_mul(steps)?)
    }
}

#[derive(Debug)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    faults: u64,
    /// Largest window now, and the upper bound of that.
    cap: u32,
    most: u32,
}

impl Streams {
    /// With windows of up to `most` pages.
    pub(crate) fn new(most: usize) -> Self {
        let most = most as u32;
        Self { streams: [Stream::default(); STREAMS], faults: 0, cap: most, most }
    }

    pub(crate) fn fault(&mut self, page: u64) -> Prediction {
        self.faults += 1;
        if self.most == 0 {
            return Prediction::default();
        }
        let (cap, most, now) = (self.cap, self.most, self.faults);
        let find = |test: &dyn Fn(&Stream) -> bool| self.streams.iter().position(|s| s.used != 0 && test(s));
        if let Some(index) = find(&|s| s.window > 0 && s.next == page) {
            self.cap = (cap * 2).min(most);
            let stream = &mut self.streams[index];
            let behind = stream.window as usize;
            stream.window = (stream.window * 2).clamp(1, self.cap);
            return Self::predict(stream, index, page, behind, now);
        }
        let distance = |s: &Stream| page.abs_diff(s.last);
        let signed = |s: &Stream| page.wrapping_sub(s.last) as i64;
        let is_near = |s: &Stream| s.window == 0 && (1..=MAX_STRIDE).contains(&distance(s));
        let sure = find(&|s| is_near(s) && (distance(s) == 1 || signed(s) == s.stride));
        if let Some(index) = sure {
            let stream = &mut self.streams[index];
            stream.stride = signed(stream);
            stream.window = FIRST_WINDOW.min(cap);
            return Self::predict(stream, index, page, 0, now);
        }
        let index = find(&is_near).unwrap_or_else(|| {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, s)| s.used);
            let index = oldest.map_or(0, |(index, _)| index);
            self.streams[index] = Stream { last: page, ..Stream::default() };
            index
        });
        let stream = &mut self.streams[index];
        stream.stride = page.wrapping_sub(stream.last) as i64;
        stream.last = page;
        stream.used = now;
        Prediction::default()
    }

    fn predict(stream: &mut Stream, index: usize, page: u64, behind: usize, now: u64) -> Prediction {
        stream.last = page;
        stream.used = now;
        let ahead = stream.window as usize;
        stream.next = page.wrapping_add_signed(stream.stride.wrapping_mul(ahead as i64 + 1));
        Prediction { stride: stream.stride, ahead, behind, stream: index }
    }

    /// Records that only the first `ahead` pages of a prediction for `page` were considered.
    pub(crate) fn cut(&mut self, prediction: Prediction, page: u64, ahead: usize) {
        if prediction.ahead == 0 {
            return;
        }
        let stream = &mut self.streams[prediction.stream];
        stream.window = ahead.max(1) as u32;
        stream.next = page.wrapping_add_signed(stream.stride.wrapping_mul(ahead as i64 + 1));
    }

    /// Records that pages were brought ahead and evicted unused.
    pub(crate) fn waste(&mut self) {
        self.cap = (self.cap / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks over `pages`, faulting where no window reaches; returns the number of faults.
    fn walk(streams: &mut Streams, pages: impl Iterator<Item = u64>) -> usize {
        let mut brought = std::collections::HashSet::new();
        let mut faults = 0;
        for page in pages {
            if !brought.remove(&page) {
                faults += 1;
                let prediction = streams.fault(page);
                for step in 1..=prediction.ahead as i64 {
                    brought.extend(prediction.page(page, step));
                }
            }
        }
        faults
    }

    #[test]
    fn walks_up_down_and_at_a_constant_stride_fault_once_a_window() {
        for stride in [1_i64, -1, 2, -3, 64] {
            let mut streams = Streams::new(32);
            let walked = (0..3300).map(|step| (1 << 20) + step * stride);
            let faults = walk(&mut streams, walked.map(|page| page as u64));
            assert!((100..=107).contains(&faults), "{stride}: {faults}");
        }
    }

    #[test]
    fn several_walks_at_once_are_kept_apart() {
        let mut streams = Streams::new(32);
        let pages = (0..3300).flat_map(|step| (0..4).map(move |walk| walk * 1_000_000 + step));
        let faults = walk(&mut streams, pages);
        assert!(faults < 4 * 110, "{faults}");
    }

    #[test]
    fn random_faults_bring_next_to_nothing() {
        let mut streams = Streams::new(32);
        let mut random = 1_u64;
        let mut ahead = 0;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ahead += streams.fault(random >> 40).ahead;
        }
        assert!(ahead < 50, "{ahead}");
    }

    #[test]
    fn waste_shrinks_windows_and_use_lets_them_grow_again() {
        let mut streams = Streams::new(32);
        for _ in 0..10 {
            streams.waste();
        }
        streams.fault(10);
        assert_eq!(streams.fault(11).ahead, 1);
        assert_eq!(streams.fault(13).ahead, 2);
        let last = [16, 21, 30, 47, 80].map(|page| streams.fault(page).ahead);
        assert_eq!(last, [4, 8, 16, 32, 32]);
    }

    #[test]
    fn numbers_at_the_ends_do_not_overflow() {
        let mut streams = Streams::new(32);
        for page in [u64::MAX - 1, u64::MAX, 0, 1, 0] {
            let prediction = streams.fault(page);
            let _ = prediction.page(page, prediction.ahead as i64);
        }
        assert_eq!(Streams::new(0).fault(1).ahead, 0);
    }
}
