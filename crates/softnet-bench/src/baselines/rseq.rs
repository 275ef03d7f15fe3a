//! Baseline `rseq`: a cache for each CPU instead of each thread, entered by a restartable sequence, with a locked depot behind all. To see what
//! a per-CPU cache would cost where nobody interferes; only what is measured there is there: one pool for the whole run, nothing goes home.
//!
//! A sequence reads the number of the CPU and works on that CPU's stack; it takes effect with its last store, of the stack's length. If the
//! kernel interrupts the thread before that store, it lets it go on at the abort address, where the sequence starts again. The kernel
//! finds a thread's current sequence in a small area that glibc registers (2.35 and later); its place is looked up at run time.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::buffers::line::{Chain, Line, Owned};
use crate::buffers::{Buffers, DATA};
use crate::error::BenchError;

/// Packets that move between a cache and the depot at once, or in a burst at most.
const BATCH: usize = 64;
const CACHE: usize = 256;

/// One CPU's stack. The assembly knows the layout.
#[repr(C, align(128))]
struct Cache {
    len: usize,
    slots: [Option<NonNull<Line>>; CACHE],
}

/// The pool. Never freed.
#[derive(Debug)]
pub(crate) struct Rseq {
    caches: NonNull<Cache>,
    /// Of the registered area, from the thread pointer.
    area: isize,
    depot: Mutex<Vec<NonNull<Line>>>,
}

// SAFETY: a cache is used by the thread that runs on its CPU, in a sequence that is not interrupted, or taken back; the depot is locked.
unsafe impl Sync for Rseq {}

impl Rseq {
    /// A pool of that many buffers.
    pub(crate) fn new(buffers: usize) -> Result<Rseq, BenchError> {
        let area = sequence::area().ok_or_else(|| {
            BenchError::Unavailable("no restartable sequences on this system".to_owned())
        })?;
        let zeroed = |layout: Layout| {
            // SAFETY: no layout here has size 0.
            NonNull::new(unsafe { alloc_zeroed(layout) })
                .ok_or_else(|| BenchError::Measure("no memory for packets".to_owned()))
        };
        let layout = |bytes: usize, align: usize| {
            Layout::from_size_align(bytes, align).map_err(|e| BenchError::Measure(e.to_string()))
        };
        // SAFETY: asks for a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
        let caches = zeroed(layout(cpus * size_of::<Cache>(), align_of::<Cache>())?)?;
        let lines = zeroed(layout(buffers * size_of::<Line>(), size_of::<Line>())?)?.cast::<Line>();
        let data = zeroed(layout(buffers * DATA, 4096)?)?;
        let line = |index| {
            // SAFETY: both blocks have room for `buffers`; nothing refers to the line yet.
            unsafe {
                let line = lines.add(index);
                line.write(Line::new(data.add(index * DATA), 0));
                line
            }
        };
        Ok(Rseq {
            caches: caches.cast(),
            area,
            depot: Mutex::new((0..buffers).map(line).collect()),
        })
    }

    /// Fills `out` from the front, and says how many.
    fn take(&self, out: &mut [Option<NonNull<Line>>]) -> usize {
        // SAFETY: the caches are those of all CPUs, and `out` has room.
        let n = unsafe { sequence::pop(self.area, self.caches, out.as_mut_ptr(), out.len()) };
        if n == out.len() {
            return n;
        }
        let mut depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = depot.len().saturating_sub(out.len());
        let mut from_depot = depot.drain(rest..);
        let mut got = 0;
        for (slot, line) in out.iter_mut().zip(&mut from_depot) {
            *slot = Some(line);
            got += 1;
        }
        drop(from_depot);
        // The next ones find the cache full.
        let mut refill: [Option<NonNull<Line>>; BATCH] = [None; BATCH];
        let from = depot.len().saturating_sub(BATCH);
        let n = depot.len() - from;
        for (slot, line) in refill.iter_mut().zip(depot.drain(from..)) {
            *slot = Some(line);
        }
        self.put(&refill[..n], &mut depot);
        got
    }

    fn put(&self, lines: &[Option<NonNull<Line>>], depot: &mut Vec<NonNull<Line>>) {
        // SAFETY: as in `take`; the lines are given up.
        if !unsafe { sequence::push(self.area, self.caches, lines.as_ptr(), lines.len()) } {
            depot.extend(lines.iter().flatten());
        }
    }

    fn give(&self, lines: &[Option<NonNull<Line>>]) {
        // SAFETY: as in `put`.
        if unsafe { sequence::push(self.area, self.caches, lines.as_ptr(), lines.len()) } {
            return;
        }
        let mut half = [None; CACHE / 2];
        // SAFETY: as in `take`.
        let n = unsafe { sequence::pop(self.area, self.caches, half.as_mut_ptr(), half.len()) };
        let mut depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        depot.extend(half[..n].iter().flatten());
        self.put(lines, &mut depot);
    }

    /// # Safety
    /// The line was just taken.
    unsafe fn wrap(line: NonNull<Line>) -> Owned<Rseq> {
        // SAFETY: all lines were written by `new`, and this one is ours alone.
        unsafe {
            line.write(Line::new(line.as_ref().data(), 0));
            Owned::new(line)
        }
    }
}

impl Buffers for Rseq {
    type Packet = Owned<Rseq>;
    type Burst = Chain<Rseq>;

    fn alloc(&self) -> Option<Owned<Rseq>> {
        let mut one = [None];
        self.take(&mut one);
        // SAFETY: just taken.
        one[0].map(|line| unsafe { Rseq::wrap(line) })
    }

    fn alloc_bulk(&self, n: usize, burst: &mut Chain<Rseq>) -> usize {
        let mut got = 0;
        let mut batch = [None; BATCH];
        while got < n {
            let want = (n - got).min(BATCH);
            let k = self.take(&mut batch[..want]);
            for line in batch[..k].iter_mut().filter_map(Option::take) {
                // SAFETY: just taken.
                burst.push(unsafe { Rseq::wrap(line) });
            }
            got += k;
            if k < want {
                break;
            }
        }
        got
    }

    fn frame_len(&self, packet: &Owned<Rseq>) -> usize {
        packet.frame_len()
    }

    fn push(&self, burst: &mut Chain<Rseq>, packet: Owned<Rseq>) {
        burst.push(packet);
    }

    fn pop(&self, burst: &mut Chain<Rseq>) -> Option<Owned<Rseq>> {
        burst.pop()
    }

    fn free(&self, packet: Owned<Rseq>) {
        self.give(&[Some(packet.into_raw())]);
    }

    fn free_bulk(&self, mut burst: Chain<Rseq>) {
        let mut batch = [None; BATCH];
        let mut n = 0;
        while let Some(packet) = burst.pop() {
            batch[n] = Some(packet.into_raw());
            n += 1;
            if n == BATCH {
                self.give(&batch);
                n = 0;
            }
        }
        self.give(&batch[..n]);
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod sequence {
    use std::arch::asm;
    use std::ptr::NonNull;

    use super::{CACHE, Cache, Line};

    const _: () = assert!(size_of::<Option<NonNull<Line>>>() == 8);

    /// Where the area lies that glibc has registered, if it has.
    pub(super) fn area() -> Option<isize> {
        // SAFETY: looks up two variables of the C library by name.
        unsafe {
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
            if size.is_null() || offset.is_null() || *size.cast::<u32>() == 0 {
                return None;
            }
            Some(*offset.cast::<isize>())
        }
    }

    /// Takes `n` pointers off this CPU's stack, or none if it has fewer; returns how many.
    ///
    /// # Safety
    /// `area` is that of the thread, `caches` has an entry for each CPU, `out` has room for `n`.
    #[inline(always)]
    pub(super) unsafe fn pop(
        area: isize,
        caches: NonNull<Cache>,
        out: *mut Option<NonNull<Line>>,
        n: usize,
    ) -> usize {
        let mut got = n;
        // SAFETY: by the caller's promise; the sequence has no effect but its last store and what it wrote to `out`.
        unsafe {
            asm!(
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "20: .long 0, 0",
                ".quad 22f, 23f - 22f, 24f",
                ".popsection",
                "21: lea {t}, [rip + 20b]",
                "mov fs:[{area} + 8], {t}",
                "22: mov {c:e}, fs:[{area} + 4]",
                "imul {c}, {c}, {size}",
                "add {c}, {caches}",
                "mov {t}, [{c}]",
                "sub {t}, {got}",
                "jb 26f",
                "xor {i:e}, {i:e}",
                "lea {s}, [{c} + {t} * 8 + 8]",
                "25: mov {v}, [{s} + {i} * 8]",
                "mov [{out} + {i} * 8], {v}",
                "inc {i}",
                "cmp {i}, {got}",
                "jb 25b",
                "mov [{c}], {t}",
                "23: jmp 27f",
                // The signature before the abort address, as an instruction that is never executed.
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "24: jmp 21b",
                "26: xor {got:e}, {got:e}",
                "27:",
                area = in(reg) area,
                caches = in(reg) caches.as_ptr(),
                out = in(reg) out,
                got = inout(reg) got,
                size = const size_of::<Cache>(),
                t = out(reg) _,
                c = out(reg) _,
                s = out(reg) _,
                i = out(reg) _,
                v = out(reg) _,
                options(nostack),
            );
        }
        got
    }

    /// Puts `n` pointers on this CPU's stack, unless they do not fit.
    ///
    /// # Safety
    /// As for [`pop`]; `from` has `n` entries.
    #[inline(always)]
    pub(super) unsafe fn push(
        area: isize,
        caches: NonNull<Cache>,
        from: *const Option<NonNull<Line>>,
        n: usize,
    ) -> bool {
        if n == 0 {
            return true;
        }
        let fits: usize;
        // SAFETY: by the caller's promise; slots beyond the length may be written in vain.
        unsafe {
            asm!(
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "20: .long 0, 0",
                ".quad 22f, 23f - 22f, 24f",
                ".popsection",
                "21: lea {t}, [rip + 20b]",
                "mov fs:[{area} + 8], {t}",
                "22: mov {c:e}, fs:[{area} + 4]",
                "imul {c}, {c}, {size}",
                "add {c}, {caches}",
                "mov {s}, [{c}]",
                "lea {t}, [{s} + {n}]",
                "cmp {t}, {most}",
                "ja 26f",
                "lea {s}, [{c} + {s} * 8 + 8]",
                "xor {i:e}, {i:e}",
                "25: mov {v}, [{from} + {i} * 8]",
                "mov [{s} + {i} * 8], {v}",
                "inc {i}",
                "cmp {i}, {n}",
                "jb 25b",
                "mov [{c}], {t}",
                "23: mov {i:e}, 1",
                "jmp 27f",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "24: jmp 21b",
                "26: xor {i:e}, {i:e}",
                "27:",
                area = in(reg) area,
                caches = in(reg) caches.as_ptr(),
                from = in(reg) from,
                n = in(reg) n,
                size = const size_of::<Cache>(),
                most = const CACHE,
                i = out(reg) fits,
                t = out(reg) _,
                c = out(reg) _,
                s = out(reg) _,
                v = out(reg) _,
                options(nostack),
            );
        }
        fits != 0
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod sequence {
    use std::ptr::NonNull;

    use super::{Cache, Line};

    pub(super) fn area() -> Option<isize> {
        None
    }

    pub(super) unsafe fn pop(
        _: isize,
        _: NonNull<Cache>,
        _: *mut Option<NonNull<Line>>,
        _: usize,
    ) -> usize {
        0
    }

    pub(super) unsafe fn push(
        _: isize,
        _: NonNull<Cache>,
        _: *const Option<NonNull<Line>>,
        _: usize,
    ) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::buffers::tests::everything_comes_back;

    #[test]
    fn every_buffer_comes_back() {
        match Rseq::new(1000) {
            Ok(pool) => {
                // Whatever CPUs the thread is moved to, what lies in others' caches is missing: not the last ones.
                everything_comes_back(&pool, 300);
            }
            Err(why) => println!("skipped: {why}"),
        }
    }

    /// Threads that are moved and interrupted all the time: no line is in two hands.
    #[test]
    fn sequences_start_again_when_interrupted() {
        let pool = match Rseq::new(4000) {
            Ok(pool) => pool,
            Err(why) => return println!("skipped: {why}"),
        };
        let used: Vec<AtomicUsize> = (0..4000).map(|_| AtomicUsize::new(0)).collect();
        let first = {
            let depot = pool.depot.lock().unwrap();
            depot[0].addr().get()
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let mut out = [None; 7];
                        let n = pool.take(&mut out[..1 + round % 7]);
                        for line in out[..n].iter().flatten() {
                            let user = &used[(line.addr().get() - first) / size_of::<Line>()];
                            assert_eq!(user.swap(1, Ordering::AcqRel), 0, "in two hands");
                        }
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        for line in out[..n].iter().flatten() {
                            let user = &used[(line.addr().get() - first) / size_of::<Line>()];
                            user.store(0, Ordering::Release);
                        }
                        pool.give(&out[..n]);
                    }
                });
            }
        });
    }
}
