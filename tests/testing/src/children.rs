//! Processes with reduced rights, for tests of what the system refuses.

use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A base for views that no other test uses, 64 GiB apart. Tests of one process run concurrently.
pub fn free_base() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    0x2000_0000_0000 + NEXT.fetch_add(1, Ordering::Relaxed) * (64 << 30)
}

/// Closes a descriptor that nobody uses any more. For use in a child.
pub fn close(fd: i32) {
    // SAFETY: the caller says so.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Runs `body` in a process of its own, where limits may be lowered, privileges dropped and faults left to kill: this test program is
/// started again with only the calling test, and gets here again. `label` distinguishes the children of one test. Returns how it ended and
/// its output.
pub fn child<F: FnOnce()>(label: &str, body: F) -> (ExitStatus, String) {
    const CHILD: &str = "MAPWIRE_TEST_CHILD";
    // crate::module::test::{{closure}}…: the path of the test, but for crate and closures.
    let path = std::any::type_name::<F>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    if let Ok(wanted) = std::env::var(CHILD) {
        if wanted == label {
            body();
            std::process::exit(0);
        }
        let status = std::os::unix::process::ExitStatusExt::from_raw(0);
        return (status, String::new());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, label)
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("running 1 test"), "{test} was not found: {text}");
    (output.status, text)
}

/// As [`child`], and fails unless `body` ran through.
pub fn in_child<F: FnOnce()>(label: &str, body: F) {
    let (status, text) = child(label, body);
    assert!(status.success(), "{label} ended with {status}: {text}");
}

/// Drops root privileges, if held, for good: no capability is left. For use in a child.
pub fn drop_privileges() {
    // SAFETY: plain system calls on the child's own credentials.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
            assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
            // Without this the child could no longer read its own /proc files.
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("CapEff:\t0000000000000000\n"), "{status}");
}

/// Lowers a limit of the calling process. For use in a child.
pub fn lower_limit(resource: rustix::process::Resource, to: u64) {
    let limit = rustix::process::Rlimit { current: Some(to), maximum: Some(to) };
    rustix::process::setrlimit(resource, limit).unwrap();
}

/// Makes the kernel refuse a system call with EPERM, as a container's seccomp profile does. For use in a child.
pub fn refuse_call(number: libc::c_long) {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter is a valid program that lives through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}
