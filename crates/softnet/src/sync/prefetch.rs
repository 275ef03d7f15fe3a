//! Asking for a cache line before it is needed.

/// Asks for the line at `at`. Any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Asks for the line at `at`, which others have and which will be written to: it is fetched once,
/// not to be read first and then for the write. Any address will do.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(at: *const T) {
    // `_MM_HINT_ET0` becomes a prefetch for reading unless the whole program is compiled for CPUs
    // whose feature flags have this instruction. All CPUs of this architecture that do not have
    // it pass it over.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{at}]",
            at = in(reg) at.addr(),
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
