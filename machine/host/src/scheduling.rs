//! How soon a woken thread gets a processor.

use core::ptr;

/// Shortest slice that the kernel grants, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Requests short slices, for a thread that sleeps much and works briefly: when it wakes, it need not wait for the end of a computing
/// thread's slice of some milliseconds. Its share of the processor stays the same.
///
/// Linux honours this from 6.12 on; before, or if it is refused, nothing changes.
pub fn ask_for_short_turns() {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut wish: libc::sched_attr = unsafe { core::mem::zeroed() };
    wish.size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: reads how the calling thread is scheduled into a structure of the size given.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut wish, wish.size, 0) };
    if read != 0 || wish.sched_policy != libc::SCHED_OTHER as u32 {
        // Other choices of the user stay.
        return;
    }
    wish.sched_runtime = SLICE_NS;
    wish.sched_flags = 0;
    // SAFETY: hands the kernel a complete structure; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(&wish), 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_short_turns_changes_neither_policy_nor_niceness() {
        let before = policy();
        ask_for_short_turns();
        assert_eq!(policy(), before);
    }

    fn policy() -> (u32, i32) {
        // SAFETY: as above.
        let mut found: libc::sched_attr = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let read = unsafe {
            let size = size_of::<libc::sched_attr>();
            libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, size, 0)
        };
        assert_eq!(read, 0);
        (found.sched_policy, found.sched_nice)
    }
}
