//! The buffers' way from the core that frees them to the one that allocates them (`mem/cache.rs`,
//! `mem/free.rs`, `mem/slow.rs`, `mem/magazine.rs`).
//!
//! - An allocation takes the newest buffer of the core's own cache. If another core wrote its
//!   header last, that line comes with others that are fetched ahead.
//! - A buffer that the core allocated itself goes into its cache. One of another core is kept
//!   while the cache is less than half full and the core allocates, too; else it is put in one of
//!   8 magazines by its owner. A magazine goes to the owner's remote-free list (one atomic
//!   operation on the owner's line) when it holds 64, or when a packet of another owner needs its
//!   place.
//! - An empty cache takes its remote-free list (one atomic operation, and 9 lines of each full
//!   magazine), then a magazine of the depot, then buffers never used. A full one spills half of
//!   it to the depot.
//!
//! Left out: buffers that are taken out of other cores' caches when everything is empty; the core
//! waits instead.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::line::LineId;
use super::machine::{Core, Machine};

const CACHE: usize = 256;
const MAGAZINE: usize = 64;
const OUTGOING: usize = 8;

/// A packet with its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    /// The core that allocated it.
    pub(super) owner: usize,
    /// The core that wrote its header last.
    pub(super) at: usize,
}

#[derive(Default)]
struct Cache {
    free: Vec<Packet>,
    outgoing: [(usize, Vec<Packet>); OUTGOING],
    keep_below: usize,
    /// Allocated since it was last decided what is kept.
    taken: usize,
}

/// Magazines that leave a cache, for the owner of their buffers or the depot.
type Out = Vec<(Option<usize>, Vec<Packet>)>;

impl Cache {
    /// Takes a packet in that the core `own` frees.
    fn put(&mut self, own: usize, packet: Packet) -> Out {
        if packet.owner == own || self.free.len() < self.keep_below {
            self.free.push(packet);
            if self.free.len() <= CACHE {
                return Out::new();
            }
            let half: Vec<_> = self.free.drain(..CACHE / 2).collect();
            let magazines = half.chunks(MAGAZINE).map(|some| (None, some.to_vec()));
            return magazines.collect();
        }
        let mut out = Out::new();
        let (owner, waiting) = &mut self.outgoing[packet.owner % OUTGOING];
        if *owner != packet.owner && !waiting.is_empty() {
            out.push((Some(*owner), std::mem::take(waiting)));
        }
        *owner = packet.owner;
        waiting.push(packet);
        if waiting.len() >= MAGAZINE {
            out.push((Some(*owner), std::mem::take(waiting)));
            let allocates = std::mem::take(&mut self.taken) >= MAGAZINE;
            self.keep_below = if allocates { CACHE / 2 } else { 0 };
        }
        out
    }
}

/// Magazines, and the line that tells of them.
struct Magazines {
    line: LineId,
    full: RefCell<Vec<Vec<Packet>>>,
}

impl Magazines {
    fn new(machine: &Machine) -> Magazines {
        Magazines {
            line: machine.line(),
            full: RefCell::default(),
        }
    }

    fn len(&self) -> usize {
        self.full.borrow().iter().map(Vec::len).sum()
    }
}

pub(super) struct Pool {
    caches: Vec<RefCell<Cache>>,
    remote: Vec<Magazines>,
    depot: Magazines,
    unused: Cell<usize>,
}

/// Reads what a magazine holds: its handle, and the addresses of the others.
fn unpack(core: &Core, magazine: &[Packet]) {
    if let Some(first) = magazine.first() {
        core.stream(first.at, 1 + magazine.len().div_ceil(8));
    }
}

impl Pool {
    pub(super) fn new(machine: &Machine, cores: usize, buffers: usize) -> Rc<Pool> {
        Rc::new(Pool {
            caches: (0..cores).map(|_| RefCell::default()).collect(),
            remote: (0..cores).map(|_| Magazines::new(machine)).collect(),
            depot: Magazines::new(machine),
            unused: Cell::new(buffers),
        })
    }

    /// A packet, unless there is none.
    pub(super) async fn alloc(&self, core: &Core) -> Option<Packet> {
        let cache = &self.caches[core.id];
        if cache.borrow().free.is_empty() {
            self.refill(core).await;
        }
        let mut cache = cache.borrow_mut();
        let packet = cache.free.pop()?;
        cache.taken += 1;
        core.stream(packet.at, 1);
        Some(Packet {
            owner: core.id,
            at: core.id,
        })
    }

    async fn refill(&self, core: &Core) {
        let mut got = Vec::new();
        let own = &self.remote[core.id];
        if core.load(own.line).await != 0 {
            got = self.take_all(core, own).await;
        }
        if got.is_empty() && core.load(self.depot.line).await != 0 {
            let pop = || self.depot.full.borrow_mut().pop();
            let mut magazine = None;
            let _ = core
                .rmw(self.depot.line, |count| {
                    magazine = pop();
                    Some(count.saturating_sub(1))
                })
                .await;
            got.extend(magazine);
        }
        let mut cache = self.caches[core.id].borrow_mut();
        for magazine in got {
            unpack(core, &magazine);
            cache.free.extend(magazine);
        }
        if cache.free.is_empty() {
            let fresh = self.unused.get().min(MAGAZINE);
            self.unused.set(self.unused.get() - fresh);
            let at = core.id;
            cache
                .free
                .extend((0..fresh).map(|_| Packet { owner: at, at }));
        }
        if cache.free.is_empty() {
            let mut outgoing = std::mem::take(&mut cache.outgoing);
            let kept = outgoing.iter_mut().flat_map(|(_, some)| some.drain(..));
            cache.free.extend(kept);
        }
    }

    async fn take_all(&self, core: &Core, from: &Magazines) -> Vec<Vec<Packet>> {
        let mut got = Vec::new();
        let take = |_| {
            got = from.full.take();
            Some(0)
        };
        let _ = core.rmw(from.line, take).await;
        got
    }

    /// Takes packets back, in the order in which they were sent.
    pub(super) async fn free(&self, core: &Core, packets: Vec<Packet>) {
        for packet in packets {
            let out = self.caches[core.id].borrow_mut().put(core.id, packet);
            for (owner, magazine) in out {
                match owner {
                    Some(owner) => self.deliver(core, owner, magazine).await,
                    None => self.push(core, &self.depot, magazine).await,
                }
            }
        }
    }

    async fn deliver(&self, core: &Core, owner: usize, magazine: Vec<Packet>) {
        let remote = &self.remote[owner];
        let fits = remote.len() + magazine.len() <= CACHE;
        self.push(core, if fits { remote } else { &self.depot }, magazine)
            .await;
    }

    async fn push(&self, core: &Core, to: &Magazines, magazine: Vec<Packet>) {
        let push = |count| {
            to.full.borrow_mut().push(magazine);
            Some(count + 1)
        };
        let _ = core.rmw(to.line, push).await;
    }
}
