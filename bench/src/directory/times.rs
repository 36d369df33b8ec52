//! Processor time of the owner's threads, by what they are for.

use std::fs;
use std::ops::Sub;
use std::path::Path;

use crate::BenchError;

/// The thread that answers for a directory on the host, and the one that is the NIC, by their names.
const HOST: &str = "mapwire-host";
const NIC: &str = "mapwire-service";

/// Nanoseconds of processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) program_ns: u64,
    pub(super) host_ns: u64,
    pub(super) nic_ns: u64,
}

impl Times {
    /// Those of this process up to now. The calling thread is the program.
    pub(super) fn now() -> Result<Self, BenchError> {
        let mut times = Self::default();
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?.path();
            // A thread may end meanwhile.
            let Ok(name) = fs::read_to_string(task.join("comm")) else {
                continue;
            };
            match name.trim_end() {
                HOST => times.host_ns += taken_ns(&task).unwrap_or(0),
                NIC => times.nic_ns += taken_ns(&task).unwrap_or(0),
                _ => {}
            }
        }
        let own = Path::new("/proc/thread-self");
        times.program_ns = taken_ns(own).ok_or(
            "/proc/thread-self/schedstat cannot be read: this kernel does not count processor time (CONFIG_SCHED_INFO)",
        )?;
        Ok(times)
    }
}

impl Sub for Times {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            program_ns: self.program_ns.saturating_sub(before.program_ns),
            host_ns: self.host_ns.saturating_sub(before.host_ns),
            nic_ns: self.nic_ns.saturating_sub(before.nic_ns),
        }
    }
}

/// The processor time of a thread.
fn taken_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_calling_thread_and_others_count_by_their_names() {
        let before = Times::now().unwrap();
        let mut sum = 0_u64;
        while (Times::now().unwrap() - before).program_ns < 5_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let nic = std::thread::Builder::new().name(NIC.to_owned());
        let (said, hears) = std::sync::mpsc::channel::<()>();
        let nic = nic.spawn(move || {
            let begun = Times::now().unwrap();
            while (Times::now().unwrap() - begun).program_ns < 5_000_000 {}
            let _ = hears.recv();
        });
        while (Times::now().unwrap() - before).nic_ns < 5_000_000 {
            std::thread::yield_now();
        }
        drop(said);
        nic.unwrap().join().unwrap();
    }
}
