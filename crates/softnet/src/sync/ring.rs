//! The pointer ring: many producers put chains of nodes in, one consumer takes them out, both in order, at most so many nodes at a time.
//! (The kernel's `ptr_ring` without its two locks.) Nobody waits for anybody, also not for a producer that was preempted half way.
//!
//! # How it works
//! *Reserve*: one compare-and-swap of `tail` gives a producer the next *position* and room for as many nodes as fit: the limit is exact, and a
//! whole chain costs one reservation and one slot. *Publish*: a compare-and-swap of the slot from "free for this position" to the
//! chain. *Consume*: a slot that holds a chain is taken and becomes free for the position one lap later; `head` is released once a batch.
//!
//! A producer preempted between the two leaves a *hole*. If nothing is published behind it, the ring is empty for the consumer. Otherwise the
//! consumer gives it [`SPINS`] pauses and then *passes* it: it makes the slot free for the next lap, so that the late publish fails and
//! its producer reserves a new position (it keeps its room). So what is published behind a hole waits for about a microsecond, whatever becomes
//! of the producer; and a producer is passed only when another one's chain got through.
//!
//! # Invariants
//! 1. A slot of an array of `size` holds a chain, or the word [`free`]`(p)` for the one position `p` that may be published there. Only the
//!    consumer changes a chain to a free word or a free word to another; only a producer changes a free word to a chain, and only the
//!    word of the position it has reserved. So each chain is given to the consumer exactly once, or back to its producer (INV-RING-1).
//! 2. Order is that of positions. A producer's call returns when its chain is published or refused, so one producer's chains leave in order.
//! 3. `tail.nodes - head` is the number of nodes reserved, published or kept by the consumer and not yet [released](RingConsumer::release); a
//!    reservation is made only if it then is at most the limit. Refused chains give their nodes back.
//! 4. No position from the consumer's to the tail's is abandoned: its producer has yet to publish or has published, so it stands for at least one
//!    node of invariant 3. (A producer that is passed leaves a position that the consumer has left, too.) As the limit is at most the size of the
//!    array, at most that many positions are in use, and a reserved slot is free.
//! 5. Arrays are of sizes 2^class, made when first needed and kept until the ring goes, so no producer ever uses a freed one (INV-RING-2).
//!    A resize changes class or generation in `tail`; reservations made before are passed or consumed before it returns, so afterwards nothing
//!    can be published by the old rules.
//!
//! Positions count modulo 2^34 and are never used twice below that, whatever is resized in between. A producer would have to sleep for an exact multiple of
//! 2^34 reservations (half an hour of them, at ten million a second) to publish into a slot that is free for the same number.
//!
//! # Ordering
//! - *T*, the reservation, reads `head` with Acquire, which pairs with *H*, its Release: the free word stored before H is what the publish finds. A
//!   slot that was passed is found free because its producer has seen that before its new T, which later T continue.
//! - *P*, the publish, releases the chain; *C*, the consumer's load of the slot, acquires it. C's store of the free word may be Relaxed: H follows.
//! - *G*, the change of class, releases array and limit; T acquires them with `tail`.
//! - T and P, the consumer's look at `tail` and C are SeqCst for the run protocol: see [`RunState`](super::RunState). A producer publishes and then
//!   claims the run or leaves MISSED; a runner clears MISSED and then looks. Either the look sees T and P, or the claim sees the look's run over.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, store_load_barrier};

/// The longest ring, in nodes.
pub const MAX_LIMIT: u32 = 1 << MAX_CLASS;

const MAX_CLASS: u32 = 20;
/// The class of a ring that takes nothing.
const CLOSED: u32 = 31;
/// How often the consumer looks again at a hole in front of published chains before it passes it: about a microsecond.
const SPINS: u32 = if cfg!(loom) { 0 } else { 32 };

/// Bits of a position.
const POSITION: u32 = 34;
/// Bits of a number of nodes: more than twice the longest limit.
const NODES: u32 = 24;
const POSITIONS: u64 = (1 << POSITION) - 1;
const ALL_NODES: u32 = (1 << NODES) - 1;

/// `tail`: position, nodes reserved (modulo 2^34 and 2^24), generation, class.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    position: u64,
    nodes: u32,
    generation: bool,
    class: u32,
}

impl Word {
    fn unpack(word: u64) -> Word {
        Word {
            position: word & POSITIONS,
            nodes: (word >> POSITION) as u32 & ALL_NODES,
            generation: word >> (POSITION + NODES) & 1 == 1,
            class: (word >> (POSITION + NODES + 1)) as u32,
        }
    }

    fn pack(self) -> u64 {
        self.position & POSITIONS
            | u64::from(self.nodes & ALL_NODES) << POSITION
            | u64::from(self.generation) << (POSITION + NODES)
            | u64::from(self.class) << (POSITION + NODES + 1)
    }

    /// Nodes in the ring, where those up to `head` have left.
    fn nodes_since(self, head: u32) -> u32 {
        self.nodes.wrapping_sub(head) & ALL_NODES
    }

    /// The limit while `tail` is this: `limit` may already be that of the next class.
    fn limit(self, limit: u32) -> u32 {
        limit.min(1 << self.class)
    }
}

/// What a slot holds while it is free for `position`: odd, so no pointer.
fn free<N>(position: u64) -> *mut N {
    std::ptr::without_provenance_mut((position & POSITIONS) as usize * 2 + 1)
}

fn chain<N>(word: *mut N) -> Option<NonNull<N>> {
    NonNull::new(word).filter(|word| word.addr().get() & 1 == 0)
}

type Slots<N> = Box<[AtomicPtr<N>]>;

/// The producers' side of a ring; see the module. Shared by reference; no function waits.
pub struct Ring<N> {
    /// Changed by producers.
    tail: CachePadded<AtomicU64>,
    /// Nodes released, modulo 2^24. Changed by the consumer.
    head: CachePadded<AtomicU32>,
    /// Nodes; changed by a resize only.
    limit: CachePadded<AtomicU32>,
    arrays: [OnceLock<Slots<N>>; MAX_CLASS as usize + 1],
}

/// Room in a ring that nothing is in yet. To be [published](Ring::publish); forgetting it loses the room until the ring is gone.
#[derive(Debug)]
#[must_use = "the room is lost if nothing is published"]
pub struct Reservation {
    position: u64,
    class: u32,
    nodes: u32,
}

impl Reservation {
    /// For so many nodes.
    pub fn nodes(&self) -> usize {
        self.nodes as usize
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The limit is reached.
    Full,
    /// The ring takes nothing now.
    Closed,
}

impl<N> Ring<N> {
    /// A ring for at most `limit` nodes, and its consumer's side. [`None`] if `limit` is above [`MAX_LIMIT`].
    pub fn new(limit: u32) -> Option<(Arc<Ring<N>>, RingConsumer<N>)> {
        const { assert!(align_of::<N>() >= 2, "a pointer to it must be even") };
        let closed = Word {
            position: 0,
            nodes: 0,
            generation: false,
            class: CLOSED,
        };
        let ring = Arc::new(Ring {
            tail: CachePadded::new(AtomicU64::new(closed.pack())),
            head: CachePadded::new(AtomicU32::new(0)),
            limit: CachePadded::new(AtomicU32::new(0)),
            arrays: [const { OnceLock::new() }; MAX_CLASS as usize + 1],
        });
        let mut consumer = RingConsumer {
            ring: ring.clone(),
            position: 0,
            seen: 0,
            nodes: 0,
            class: CLOSED,
        };
        consumer.open(limit, 0, |_| ()).then_some((ring, consumer))
    }

    fn slot(&self, class: u32, position: u64) -> Option<&AtomicPtr<N>> {
        let slots = self.arrays.get(class as usize)?.get()?;
        slots.get(position as usize & (slots.len() - 1))
    }

    fn tail(&self) -> Word {
        Word::unpack(self.tail.load(Ordering::Acquire))
    }

    fn head(&self) -> u32 {
        // T: pairs with H.
        self.head.load(Ordering::Acquire)
    }

    /// The one place where `tail` changes.
    fn change_tail(&self, old: Word, new: Word) -> Result<(), Word> {
        self.tail
            .compare_exchange_weak(old.pack(), new.pack(), Ordering::SeqCst, Ordering::Acquire)
            .map(drop)
            .map_err(Word::unpack)
    }

    /// Reserves room for a chain of `nodes`, or for as many of them as fit.
    ///
    /// # Errors
    /// If not one fits.
    pub fn reserve(&self, nodes: usize) -> Result<Reservation, NoRoom> {
        let mut tail = self.tail();
        loop {
            if tail.class == CLOSED {
                return Err(NoRoom::Closed);
            }
            let head = self.head();
            // Of this class and generation or later ones; in the latter case the swap below fails.
            let limit = tail.limit(self.limit.load(Ordering::Relaxed));
            let room = limit.saturating_sub(tail.nodes_since(head));
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).min(room);
            if nodes == 0 {
                // `head` may be newer than `tail`, which then looks full.
                let now = self.tail();
                if now == tail {
                    return Err(NoRoom::Full);
                }
                tail = now;
                continue;
            }
            let next = Word {
                position: tail.position.wrapping_add(1),
                nodes: tail.nodes.wrapping_add(nodes),
                ..tail
            };
            // T
            match self.change_tail(tail, next) {
                Ok(()) => {
                    return Ok(Reservation {
                        position: tail.position,
                        class: tail.class,
                        nodes,
                    });
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Puts a chain of as many nodes as were reserved into the ring, and with it gives it up to the consumer. If the consumer has
    /// passed the reservation, a new position is taken: the chain leaves as if the call had begun only now.
    ///
    /// # Errors
    /// With the chain, if the ring was closed or shortened meanwhile.
    pub fn publish(
        &self,
        room: Reservation,
        first: NonNull<N>,
    ) -> Result<(), (NonNull<N>, NoRoom)> {
        debug_assert!(first.addr().get() & 1 == 0, "nodes are aligned");
        let Reservation {
            mut position,
            mut class,
            nodes,
        } = room;
        loop {
            let published = self.slot(class, position).is_some_and(|slot| {
                // P
                slot.compare_exchange(
                    free(position),
                    first.as_ptr(),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                )
                .is_ok()
            });
            if published {
                store_load_barrier();
                return Ok(());
            }
            // Passed.
            (position, class) = self.reserve_again(nodes).map_err(|why| (first, why))?;
        }
    }

    /// A new position for nodes that are counted in already; or gives their room back.
    fn reserve_again(&self, nodes: u32) -> Result<(u64, u32), NoRoom> {
        let mut tail = self.tail();
        loop {
            let head = self.head();
            let limit = self.limit.load(Ordering::Relaxed);
            let refused = if tail.class == CLOSED {
                Some(NoRoom::Closed)
            } else {
                // After a resize the ring may hold more than the limit, this chain's nodes included.
                (tail.nodes_since(head) > tail.limit(limit)).then_some(NoRoom::Full)
            };
            let next = match refused {
                Some(_) => Word {
                    nodes: tail.nodes.wrapping_sub(nodes),
                    ..tail
                },
                None => Word {
                    position: tail.position.wrapping_add(1),
                    ..tail
                },
            };
            match self.change_tail(tail, next) {
                Ok(()) => return refused.map_or(Ok((tail.position, tail.class)), Err),
                Err(now) => tail = now,
            }
        }
    }

    /// Nodes in the ring and kept by its consumer, also those about to be published. A recent value; exact when nobody uses the ring.
    pub fn len(&self) -> usize {
        let (head, tail) = (self.head(), self.tail());
        let nodes = tail.nodes_since(head);
        // `tail` is read later, so the difference is never negative.
        nodes as usize
    }

    /// Whether [`len`](Ring::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes anything (if it is not full).
    pub fn is_open(&self) -> bool {
        Word::unpack(self.tail.load(Ordering::Relaxed)).class != CLOSED
    }

    /// The limit, in nodes.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }
}

impl<N> fmt::Debug for Ring<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("len", &self.len())
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

/// The consumer's side of a ring: one, used by one thread at a time.
pub struct RingConsumer<N> {
    ring: Arc<Ring<N>>,
    /// Of the next slot to look at.
    position: u64,
    /// Positions before this one are reserved.
    seen: u64,
    /// Nodes released.
    nodes: u32,
    class: u32,
}

impl<N> RingConsumer<N> {
    /// Takes the next chain. To be [released](RingConsumer::release) when its nodes are no longer to count.
    #[inline]
    pub fn take(&mut self) -> Option<NonNull<N>> {
        loop {
            if self.position == self.seen && !self.look() {
                return None;
            }
            let slot = self.ring.slot(self.class, self.position)?;
            // C: pairs with P.
            if let Some(first) = chain(slot.load(Ordering::SeqCst)) {
                slot.store(free(self.next_lap()), Ordering::Relaxed);
                self.advance();
                return Some(first);
            }
            if !self.chain_behind() {
                return None;
            }
            self.wait_or_pass();
        }
    }

    /// Whether something is reserved at or behind the position.
    fn look(&mut self) -> bool {
        store_load_barrier();
        let tail = Word::unpack(self.ring.tail.load(Ordering::SeqCst));
        self.seen = tail.position;
        self.position != self.seen
    }

    fn advance(&mut self) {
        self.position = self.position.wrapping_add(1) & POSITIONS;
    }

    fn next_lap(&self) -> u64 {
        self.position.wrapping_add(1 << self.class)
    }

    /// Whether a chain is published behind the hole at the position.
    fn chain_behind(&mut self) -> bool {
        self.look();
        let mut position = self.position;
        loop {
            position = position.wrapping_add(1) & POSITIONS;
            if position == self.seen {
                return false;
            }
            let slot = self.ring.slot(self.class, position);
            if slot.is_some_and(|slot| chain(slot.load(Ordering::SeqCst)).is_some()) {
                return true;
            }
        }
    }

    /// Gives the producer of the hole at the position a moment, and then passes it.
    fn wait_or_pass(&mut self) {
        let Some(slot) = self.ring.slot(self.class, self.position) else {
            return;
        };
        for _ in 0..SPINS {
            if chain(slot.load(Ordering::Relaxed)).is_some() {
                return;
            }
            std::hint::spin_loop();
        }
        self.pass();
    }

    /// Passes the hole at the position. False if it was filled at the last moment.
    fn pass(&mut self) -> bool {
        let passed = self
            .ring
            .slot(self.class, self.position)
            .is_some_and(|slot| {
                slot.compare_exchange(
                    free(self.position),
                    free(self.next_lap()),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
            });
        if passed {
            self.advance();
        }
        passed
    }

    /// Gives the producers room for so many nodes, which have left.
    #[inline]
    pub fn release(&mut self, nodes: usize) {
        self.nodes = self.nodes.wrapping_add(nodes as u32) & ALL_NODES;
        // H: pairs with T.
        self.ring.head.store(self.nodes, Ordering::Release);
    }

    /// Takes room for so many nodes, or as many as fit, that the caller keeps as if they were in the ring, before all that is there. To be
    /// [released](RingConsumer::release).
    pub fn claim(&mut self, nodes: usize) -> usize {
        let mut tail = self.ring.tail();
        loop {
            let limit = self.ring.limit.load(Ordering::Relaxed);
            let room = limit.saturating_sub(tail.nodes_since(self.nodes));
            let fits = u32::try_from(nodes).unwrap_or(u32::MAX).min(room);
            let next = Word {
                nodes: tail.nodes.wrapping_add(fits),
                ..tail
            };
            match self.ring.change_tail(tail, next) {
                Ok(()) => return fits as usize,
                Err(now) => tail = now,
            }
        }
    }

    /// Whether nothing is in the ring, nor about to be published. What the consumer has taken and not released does not count.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.position == Word::unpack(self.ring.tail.load(Ordering::SeqCst)).position
    }

    /// The producers' side.
    pub fn ring(&self) -> &Arc<Ring<N>> {
        &self.ring
    }

    /// Changes the limit, while producers go on. All that is in the ring goes to `take`, oldest first, and counts
    /// until it is [released](RingConsumer::release): the caller keeps what fits, and delivers it before what comes later. False, and nothing changed, if
    /// `limit` is above [`MAX_LIMIT`].
    pub fn resize(&mut self, limit: u32, take: impl FnMut(NonNull<N>)) -> bool {
        self.open(limit, 0, take)
    }

    /// As [`resize`](RingConsumer::resize); also opens a closed ring. From the start, `nodes` that the caller keeps count as if they were in
    /// the ring, until they are released: what they were before, they are before all that producers put in.
    pub fn open(&mut self, limit: u32, nodes: u32, take: impl FnMut(NonNull<N>)) -> bool {
        if limit > MAX_LIMIT {
            return false;
        }
        let class = limit.next_power_of_two().trailing_zeros();
        let start = if class == self.class {
            None
        } else {
            // No producer gets there while the array is prepared (invariant 4), and none has been there: a reservation made before the change is good
            // for no slot after it.
            let size = if self.class == CLOSED {
                0
            } else {
                1 << self.class
            };
            let start = self.position.wrapping_add(size) & POSITIONS;
            self.prepare(class, start);
            Some(start)
        };
        self.ring.limit.store(limit, Ordering::Relaxed);
        self.switch(class, start, nodes, take);
        true
    }

    /// Takes nothing any more, from now until it is [opened](RingConsumer::open). All that is in the ring goes to `take`, as there.
    pub fn close(&mut self, take: impl FnMut(NonNull<N>)) {
        self.switch(CLOSED, None, 0, take);
    }

    /// Makes every slot of an array free, for the positions from `start` on.
    fn prepare(&self, class: u32, start: u64) {
        let size = 1_u64 << class;
        let fresh = || (0..size).map(|_| AtomicPtr::new(free(0))).collect();
        let Some(array) = self.ring.arrays.get(class as usize) else {
            return;
        };
        let slots = array.get_or_init(fresh);
        for n in 0..size {
            let position = start.wrapping_add(n) & POSITIONS;
            // Nobody who could still publish here has a reservation (invariant 5). G publishes this.
            slots[(position & (size - 1)) as usize].store(free(position), Ordering::Relaxed);
        }
    }

    /// Lets producers use another class and generation, and takes all that came before.
    fn switch(
        &mut self,
        class: u32,
        start: Option<u64>,
        nodes: u32,
        mut take: impl FnMut(NonNull<N>),
    ) {
        let mut tail = self.ring.tail();
        let end = loop {
            let next = Word {
                position: start.unwrap_or(tail.position),
                nodes: tail.nodes.wrapping_add(nodes),
                generation: !tail.generation,
                class,
            };
            // G
            match self.ring.change_tail(tail, next) {
                Ok(()) => break tail.position,
                Err(now) => tail = now,
            }
        };
        while self.class != CLOSED && self.position != end {
            let slot = self.ring.slot(self.class, self.position);
            // C
            match slot.and_then(|slot| chain(slot.load(Ordering::SeqCst)).map(|c| (slot, c))) {
                Some((slot, first)) => {
                    slot.store(free(self.next_lap()), Ordering::Relaxed);
                    self.advance();
                    take(first);
                }
                None => {
                    self.pass();
                }
            }
        }
        self.position = start.unwrap_or(end);
        self.seen = self.position;
        self.class = class;
    }
}

/// Steps left out, for models that have to fail.
#[cfg(all(test, loom))]
impl<N> RingConsumer<N> {
    pub(super) fn take_without_passing(&mut self) -> Option<NonNull<N>> {
        self.look();
        let slot = self.ring.slot(self.class, self.position)?;
        chain(slot.load(Ordering::SeqCst))
    }

    pub(super) fn skip_without_word(&mut self) {
        self.look();
        self.advance();
    }
}

impl<N> fmt::Debug for RingConsumer<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingConsumer")
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
