//! A rank that donates frames.

use core::time::Duration;

use mapwire_gms::FRAME_BYTES;
use mapwire_launch::NamedJob;

use super::memory::GlobalMemory;
use crate::config::NodeConfig;
use crate::error::{Error, Result};

/// Frames that begin to serve at a time: the memory of each is touched first, so that it is charged to the donor.
const STEP: u32 = 256;

/// How few free frames make a donor of many ask for more: 16 MiB.
const FEW: u32 = 16 * STEP;

/// How few make one ask for more that has so many.
fn few(serving: u32) -> u32 {
    (serving / 2).clamp(STEP, FEW)
}

/// Memory of this process that other ranks of a job put pages into.
#[derive(Debug)]
pub struct Donation {
    memory: GlobalMemory,
    most: u32,
    /// Frames that have memory.
    backed: Vec<bool>,
}

/// How a donation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Frames that serve others.
    pub serving: u32,
    /// Of them, those that hold pages.
    pub used: u32,
    /// Few are free, and there may be more.
    pub wants_more: bool,
    /// Nobody is there any more for whom they might serve.
    pub is_over: bool,
}

impl Donation {
    /// Joins a job, as `MAPWIRE_*` variables say, with at most `most` frames of 4,096 bytes, none of which serves yet. `pages` is how many all donors of the job have
    /// together.
    ///
    /// # Errors
    /// As [`Node::join`](crate::Node::join); a rank does not come.
    pub fn join(job: &NamedJob, timeout: Duration, most: u32, pages: u64) -> Result<Self> {
        let memory = GlobalMemory::join(NodeConfig::from_env()?, job, timeout, 0, most, pages)?;
        let backed = vec![false; most as usize];
        Ok(Self { memory, most, backed })
    }

    /// Serves for `time`, with `target` frames in the end; not as long, if few are free and it `may_grow`. Fewer frames than before: pages
    /// that are on disk are dropped, others go to other donors, as far as these take them.
    ///
    /// # Errors
    /// The node is at its end.
    pub fn serve(&mut self, time: Duration, target: u32, may_grow: bool) -> Result<Standing> {
        let target = target.min(self.most);
        let serving = self.memory.call(|gms, _| gms.serving())?;
        let next = target.min(serving + STEP);
        if next > serving {
            self.back(next - serving)?;
        }
        if next != serving {
            self.memory.call(|gms, now_ns| gms.donate(now_ns, next))?.map_err(Error::GlobalCall)?;
        }
        let time = if next < target { Duration::ZERO } else { time };
        // Whoever waits runs the node. That the time is over is no error.
        let _ = self.memory.wait(time, |gms| {
            while gms.poll_outcome().is_some() {}
            (may_grow && gms.free_frames() < few(gms.serving())).then_some(())
        });
        if serving > target {
            self.give_back()?;
        }
        let (serving, free) = self.memory.call(|gms, _| (gms.serving(), gms.free_frames()))?;
        Ok(Standing {
            serving,
            used: serving.saturating_sub(free),
            wants_more: free < few(serving) && serving >= target && serving < self.most,
            is_over: self.memory.has_lost_first(),
        })
    }

    /// Touches the memory of the frames that serve next.
    fn back(&mut self, count: u32) -> Result<()> {
        let next = self.memory.call(|gms, _| gms.idle_frames().take(count as usize).collect::<Vec<u32>>())?;
        for frame in next {
            let backed = &mut self.backed[frame as usize];
            if !*backed {
                *backed = true;
                let offset = frame as usize * FRAME_BYTES as usize;
                self.memory.buffer().store_u64(offset, 0)?;
            }
        }
        Ok(())
    }

    /// Gives the memory of frames that serve nobody back to the system.
    fn give_back(&mut self) -> Result<()> {
        let idle = self.memory.call(|gms, _| gms.idle_frames().collect::<Vec<u32>>())?;
        for frame in idle {
            let backed = &mut self.backed[frame as usize];
            if *backed {
                *backed = false;
                let offset = frame as usize * FRAME_BYTES as usize;
                self.memory.buffer().discard(offset, FRAME_BYTES as usize)?;
            }
        }
        Ok(())
    }
}
