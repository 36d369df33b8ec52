//! Takes from this process what the kernel could refuse: calls, memory, capabilities. For good, so only in a rank.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Lets the kernel answer a system call with `errno`, as a container's seccomp profile does; of `ioctl`, only the calls with
/// that command.
pub(crate) fn refuse_call(number: libc::c_long, command: Option<u32>, errno: i32) {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let unless = |value, skip| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, value);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    // Offsets in `seccomp_data`: the call's number, and the low half of its second argument.
    let (call, second) = (0, 16 + 8);
    let mut steps = vec![load(call)];
    match command {
        None => steps.push(unless(number as u32, 1)),
        Some(command) => {
            steps.extend([unless(number as u32, 3), load(second), unless(command, 1)]);
        }
    }
    steps.push(answer(libc::SECCOMP_RET_ERRNO | errno as u32));
    steps.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a plain setting of this process.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(set, 0);
    // SAFETY: the program is valid and lives through the call; the kernel copies it. TSYNC: for every thread.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(installed, 0);
}

/// No userfaultfd, neither by the call nor by the device.
pub(crate) fn refuse_userfaultfd() {
    const USERFAULTFD_IOC_NEW: u32 = 0xaa00;
    refuse_call(libc::SYS_userfaultfd, None, libc::EPERM);
    refuse_call(libc::SYS_ioctl, Some(USERFAULTFD_IOC_NEW), libc::EPERM);
}

/// Lowers a limit of this process.
pub(crate) fn lower_limit(resource: Resource, to: u64) {
    let limit = Rlimit { current: Some(to), maximum: Some(to) };
    setrlimit(resource, limit).expect("a lower limit");
}

/// Maps `bytes` of private memory at `address`, which must be free.
pub(crate) fn map_at(address: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let place = std::ptr::without_provenance_mut(address);
    // SAFETY: the address was free, or the call fails; nothing of this program lies there.
    let got = unsafe { libc::mmap(place, bytes, libc::PROT_READ, flags, -1, 0) };
    assert_eq!(got.addr(), address);
}

/// Ends this process with 0 and nothing else: there is no memory left for what exits do.
#[allow(unsafe_code)]
pub(crate) fn end_at_once() -> ! {
    // SAFETY: it does not return, and nothing of this process is needed any more.
    unsafe { libc::_exit(0) }
}

/// Uses up mapped ranges until the kernel allows only `left` more.
pub(crate) fn use_up_ranges(left: usize) {
    let limit: usize =
        std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a limit").trim().parse().expect("a number");
    let used = std::fs::read_to_string("/proc/self/maps").expect("the mapped ranges").lines().count();
    let pages = limit - used - left;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh memory that nobody uses, wherever the kernel likes.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * 4096, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // Every other page open to loads: no two neighbours make one range.
    for page in (1..pages - 1).step_by(2) {
        // SAFETY: a page of the memory that was mapped above.
        let done = unsafe { libc::mprotect(start.wrapping_byte_add(page * 4096), 4096, libc::PROT_READ) };
        assert_eq!(done, 0);
    }
}

/// Leaves SIGTERM without effect, so that a rank can say how it fared before the launcher's patience ends.
pub(crate) fn outlive_sigterm() {
    // SAFETY: ignoring a signal runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR);
}
