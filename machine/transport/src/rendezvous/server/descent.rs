//! Which processes descend from which, by `/proc`.

use mapwire_host::processes::parent_of;

/// Longest line of ancestors that is followed, which bounds what a connection costs its broker: some microseconds for each.
const MAX_ANCESTORS: usize = 128;

/// `pid` and its ancestors, nearest first, as far as they can be read. A process that ends and whose number is
/// given to another meanwhile brings no stranger into the line: each parent is named by a child that still
/// has it afterwards.
pub(super) fn line_of(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while line.len() < MAX_ANCESTORS
        && let Some(last) = line.last().copied()
        && let Some(parent) = parent_of(last).filter(|parent| *parent != 0)
    {
        // The child had this parent before the parent's own parent is read, and has it still: so the
        // number has named one process all the while.
        if line.len() > 1 && parent_of(line[line.len() - 2]) != Some(last) {
            line.pop();
            break;
        }
        line.push(parent);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_descends_from_itself_and_its_parents() {
        let line = line_of(std::process::id());
        assert_eq!(line[0], std::process::id());
        assert_eq!(line[1], std::os::unix::process::parent_id());
    }

    #[test]
    fn a_child_descends_from_this_process_and_not_the_other_way() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(line_of(child.id()).contains(&std::process::id()));
        assert!(!line_of(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(line_of(child.id()), [child.id()], "it has gone");
    }
}
