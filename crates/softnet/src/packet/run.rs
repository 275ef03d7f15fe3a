//! The run of a transmit queue with owned packets at its ends: a [`RunList`], with or without [`Lanes`] beside it.

use super::adopt::{oldest_first, turn, turn_back};
use super::lane_care::{Care, TAKE_OVER, TRY_EVERY};
use super::{Header, PacketList};
use crate::sync::{LanePush, Lanes, Pushed, RunList, RunnerGuard, Taken, prefetch};

/// Packets that wait for the thread which has the run, and what only that thread may touch: a [`RunList`] of packets, with or without [`Lanes`] beside it.
#[derive(Debug)]
pub struct PacketRun<T> {
    list: RunList<Header, Inner<T>>,
    lanes: Option<Lanes<Header>>,
}

#[derive(Debug)]
struct Inner<T> {
    value: T,
    care: Care,
}

/// What became of a sender's packets; see [`PacketRun::enter`].
#[derive(Debug)]
pub enum Entry<'a, T> {
    /// The caller has the run. The packets in its list are those left by others before, which go first, and its own.
    Runs(PacketRunner<'a, T>),
    /// They wait for the thread that has the run.
    Left,
    /// Their lane had grown long, and nobody had the run: now the caller has it. The packets in its list are those that waited, its own among them unless they are gone already.
    TakesOver(PacketRunner<'a, T>),
    /// Too many wait. They are still in the caller's list.
    Full,
}

impl<T> PacketRun<T> {
    /// Idle and empty, around `value`, made for up to `expected` packets that wait (see [`RunList::new`]).
    pub fn new(value: T, expected: usize) -> Self {
        let care = Care::default();
        PacketRun {
            list: RunList::new(Inner { value, care }, expected),
            lanes: None,
        }
    }

    /// Gives it so many lanes, each made for up to `expected` packets, for [`enter_by_lane`](PacketRun::enter_by_lane).
    #[must_use]
    pub fn with_lanes(mut self, lanes: usize, expected: usize) -> Self {
        self.lanes = Some(Lanes::new(lanes, expected));
        self
    }

    /// Its lanes, if it has any.
    #[inline]
    pub(crate) fn lanes(&self) -> Option<&Lanes<Header>> {
        self.lanes.as_ref()
    }

    #[inline]
    fn runner<'a>(&'a self, guard: RunnerGuard<'a, Header, Inner<T>>) -> PacketRunner<'a, T> {
        PacketRunner { guard, run: self }
    }

    /// Takes the run if nobody has it, else leaves `packets`, in one atomic operation, to the thread that has it, unless others wait and together they
    /// would be more than `limit`. Never waits.
    #[inline]
    pub fn enter(&self, packets: &mut PacketList, limit: usize) -> Entry<'_, T> {
        loop {
            if let Some(runner) = self.enter_idle(packets) {
                return Entry::Runs(runner);
            }
            match self.push(packets, limit, false) {
                Pushed::Left => return Entry::Left,
                Pushed::Full => return Entry::Full,
                Pushed::Idle => {}
            }
        }
    }

    #[inline]
    fn enter_idle(&self, packets: &mut PacketList) -> Option<PacketRunner<'_, T>> {
        let (guard, left) = self.list.try_begin()?;
        put_first(left, packets);
        Some(self.runner(guard))
    }

    /// Leaves `packets` without taking the run, also where nobody has it: the caller must tell somebody to run. False, and the packets still in the list,
    /// if others wait and together they would be more than `limit`.
    #[inline]
    pub fn leave(&self, packets: &mut PacketList, limit: usize) -> bool {
        self.push(packets, limit, true) == Pushed::Left
    }

    #[inline]
    fn push(&self, packets: &mut PacketList, limit: usize, unattended: bool) -> Pushed {
        let Some(chain) = turn(packets) else {
            return Pushed::Left;
        };
        // SAFETY: `turn` made the chain, linked from `tail` to `head`, and gave it to us.
        let pushed = unsafe {
            self.list
                .push(chain.tail, chain.head, chain.len, limit, unattended)
        };
        if pushed != Pushed::Left {
            // SAFETY: not pushed, so still ours.
            unsafe { turn_back(chain, packets) };
        }
        pushed
    }

    /// As [`enter`](PacketRun::enter), but packets that cannot be run at once wait in `lane`, for a sender of the same lane to take them as soon as they are many, or for anybody
    /// if they stay few. Packets of one lane keep their order; those of different lanes may pass each other. `limit` is for each lane.
    ///
    /// # Panics
    /// If it has no [lanes](PacketRun::with_lanes).
    #[inline]
    pub fn enter_by_lane(
        &self,
        packets: &mut PacketList,
        limit: usize,
        lane: usize,
    ) -> Entry<'_, T> {
        let lanes = self.lanes.as_ref().expect("it was made with lanes");
        if !lanes.is_attended(lane)
            && let Some(runner) = self.enter_idle(packets)
        {
            return Entry::Runs(runner);
        }
        loop {
            let Some(chain) = turn(packets) else {
                return Entry::Left;
            };
            // SAFETY: `turn` made the chain, linked from `tail` to `head`, and gave it to us.
            let pushed = unsafe { lanes.push(lane, chain.tail, chain.head, chain.len, limit) };
            let epoch = match pushed {
                LanePush::Left(waiting) => {
                    if waiting < TAKE_OVER || waiting % TRY_EVERY >= chain.len {
                        return Entry::Left;
                    }
                    return self.take_over(lanes, lane, packets);
                }
                LanePush::Full => {
                    // SAFETY: not pushed, so still ours.
                    unsafe { turn_back(chain, packets) };
                    return Entry::Full;
                }
                LanePush::Unattended(epoch) => epoch,
            };
            lanes.announce(lane);
            let begun = self.list.begin_or_note();
            let settled = begun.is_none() && {
                // SAFETY: as above.
                unsafe { lanes.settle(lane, epoch, chain.tail, chain.head, chain.len) }
            };
            if settled {
                return Entry::Left;
            }
            // SAFETY: not left, so still ours.
            unsafe { turn_back(chain, packets) };
            if let Some((guard, left)) = begun {
                put_first(left, packets);
                return Entry::Runs(self.runner(guard));
            }
        }
    }

    fn take_over(
        &self,
        lanes: &Lanes<Header>,
        lane: usize,
        packets: &mut PacketList,
    ) -> Entry<'_, T> {
        let Some((mut guard, left)) = self.list.try_begin() else {
            return Entry::Left;
        };
        fetch(&*guard);
        guard.care.taken_over();
        put_first(left, packets);
        packets.append(&mut oldest_first(lanes.take(lane)));
        Entry::TakesOver(self.runner(guard))
    }

    /// Takes the run with all that waits, if nobody has it.
    #[inline]
    pub fn try_begin(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        let (guard, left) = self.list.try_begin()?;
        Some((self.runner(guard), oldest_first(left)))
    }

    /// As [`begin_or_miss`](PacketRun::begin_or_miss), for senders that have put packets elsewhere; see [`RunList::begin_or_note`].
    #[inline]
    pub fn begin_or_note(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        let (guard, left) = self.list.begin_or_note()?;
        Some((self.runner(guard), oldest_first(left)))
    }

    /// Takes the run with all that waits, or makes the thread that has it go round once more, and take what waits in all lanes. For events that are no packets.
    pub fn begin_or_miss(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        if let Some(lanes) = &self.lanes {
            lanes.announce_all();
        }
        let (guard, left) = self.list.begin_or_miss()?;
        let mut all = oldest_first(left);
        self.take_lanes(&mut all);
        Some((self.runner(guard), all))
    }

    /// Takes the run with all that waits, yielding the CPU while another thread has it. For the control path only.
    pub fn begin_slow(&self) -> (PacketRunner<'_, T>, PacketList) {
        let (guard, left) = self.list.begin_slow();
        let mut all = oldest_first(left);
        self.take_lanes(&mut all);
        (self.runner(guard), all)
    }

    /// For the thread that has the run.
    fn take_lanes(&self, packets: &mut PacketList) {
        if let Some(lanes) = &self.lanes {
            lanes.take_announced(|taken| packets.append(&mut oldest_first(taken)));
        }
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        let in_lanes = |lanes: &Lanes<Header>| (0..lanes.len()).map(|l| lanes.waiting(l)).sum();
        self.list.len() + self.lanes.as_ref().map_or(0, in_lanes)
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.as_ref().is_none_or(Lanes::is_quiet) && self.list.is_empty()
    }

    /// Whether nothing waits and nobody runs.
    pub fn is_idle(&self) -> bool {
        // In this order: a lane is left without its bit only while somebody runs.
        self.lanes.as_ref().is_none_or(Lanes::is_quiet) && self.list.is_idle()
    }
}

impl<T> Drop for PacketRun<T> {
    fn drop(&mut self) {
        drop(oldest_first(self.list.take_mut()));
        if let Some(lanes) = &self.lanes {
            (0..lanes.len()).for_each(|lane| drop(oldest_first(lanes.take(lane))));
        }
    }
}

/// The run of a [`PacketRun`]: exclusive access to its value.
#[derive(Debug)]
pub struct PacketRunner<'a, T> {
    guard: RunnerGuard<'a, Header, Inner<T>>,
    run: &'a PacketRun<T>,
}

impl<'a, T> PacketRunner<'a, T> {
    /// Takes what waits, oldest first, and says whether anything but packets was missed, which is forgotten: the caller looks at everything after this.
    #[inline]
    pub fn take(&mut self) -> (PacketList, bool) {
        let taken = self.guard.take();
        let missed = taken.missed();
        let mut all = oldest_first(taken);
        if self.run.lanes.is_some() && !self.guard.care.passes() {
            self.run.take_lanes(&mut all);
            self.guard.care.taken(all.len());
        }
        (all, missed)
    }

    /// Gives the run up, if nothing waits and nothing was missed. True: something waits in a lane, whose senders will probably take it themselves, but somebody must be
    /// told to run after a while.
    ///
    /// # Errors
    /// With the run itself: [`take`](PacketRunner::take) and go round again.
    #[inline]
    pub fn end(mut self) -> Result<bool, PacketRunner<'a, T>> {
        let run = self.run;
        let mut passed = false;
        if let Some(lanes) = &run.lanes {
            if lanes.is_quiet() {
                self.guard.care.quiet();
            } else if self.guard.care.pass(lanes) {
                passed = true;
            } else {
                return Err(self);
            }
        }
        match self.guard.end() {
            Ok(()) => Ok(passed),
            Err(guard) => Err(PacketRunner { guard, run }),
        }
    }

    /// Gives the run up, whatever waits. Returns true if anything does, or was missed: somebody must then be told to run.
    #[must_use = "what waits is stuck unless somebody is told"]
    pub fn leave(self) -> bool {
        let lanes = &self.run.lanes;
        self.guard.leave() || lanes.as_ref().is_some_and(|lanes| !lanes.is_quiet())
    }
}

impl<T> std::ops::Deref for PacketRunner<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard.value
    }
}

impl<T> std::ops::DerefMut for PacketRunner<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard.value
    }
}

/// Asks for all lines of a value at once, which another CPU has used until now.
fn fetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    (0..size_of::<T>())
        .step_by(64)
        .for_each(|at| prefetch(start.wrapping_add(at)));
}

/// Puts what waited in front of `packets`.
#[inline]
fn put_first(left: Taken<'_, Header>, packets: &mut PacketList) {
    if !left.is_empty() {
        let mut all = oldest_first(left);
        all.append(packets);
        *packets = all;
    }
}
