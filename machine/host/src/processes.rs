//! Processes of this computer, as `/proc` shows them.

/// The parent of a process; `None` when there is no such process.
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "pid (name) state parent …", and the name may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_this_process_is_found_in_proc() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(parent_of(std::process::id()), Some(parent));
        assert_eq!(parent_of(u32::MAX), None);
    }
}
