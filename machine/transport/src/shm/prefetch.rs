//! Asking the processor for cache lines before they are needed. Hints only: nothing observable changes.

pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the line at `address`, to be written soon: it leaves the other processors' caches.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch neither faults nor changes anything, whatever the address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch neither faults nor changes anything, whatever the address.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
