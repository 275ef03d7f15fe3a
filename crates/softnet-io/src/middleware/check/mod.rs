//! Feature `check`: a driver or a qdisc whose every call is held against its contract.
//!
//! A breach panics with the name of the driver or qdisc and its deed. Costs several hundred
//! nanoseconds a packet: for tests. The pool, built with the same feature, reports what is found
//! later: a packet freed twice, a write to a buffer after its return; a read after it finds
//! [`POISON`](softnet::mem::POISON).

mod driver;
mod qdisc;

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use softnet::mem::{Holder, PacketList};

/// A checked driver ([`TxRing`](softnet::tx::TxRing), [`RxQueue`](softnet_engine::rx::RxQueue)) or
/// [`Qdisc`](softnet::qdisc::Qdisc).
///
/// ```should_panic
/// use softnet::mem::{PacketList, Pool, PoolConfig};
/// use softnet::tx::{Sent, TxRing, Xmit};
/// use softnet_io::middleware::Checked;
///
/// /// Takes one packet and says that it took all.
/// struct Hasty;
///
/// impl TxRing for Hasty {
///     fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
///         packets.pop_front().iter().for_each(|packet| sent.count(packet));
///         Xmit::Complete
///     }
/// }
///
/// let pool = Pool::new(PoolConfig { buffers: 4, buffer_size: 2048 })?;
/// let mut packets = PacketList::new();
/// pool.alloc_bulk(2, &mut packets);
/// let mut ring = Checked::driver("hasty", Hasty);
/// // driver hasty: said Complete and left packets: 1
/// ring.xmit(&mut packets, &mut Sent::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Checked<D> {
    // Dropped before `check`, which then finds what it has not given back.
    driver: D,
    check: Check,
}

/// The knowledge of a [`Checked`] about its driver or qdisc.
struct Check {
    name: String,
    holder: Holder,
    /// Packets that a driver holds at most between two calls.
    slots: usize,
    /// Packets that a qdisc was given and has not given back.
    inside: HashSet<usize>,
    /// True: a qdisc holds one packet for each that it counts. Not so once it was given a large
    /// frame, which it may segment, or has sent a packet elsewhere.
    exact: bool,
}

impl<D> Checked<D> {
    /// A driver, called `driver NAME` in panics.
    pub fn driver(name: &str, driver: D) -> Self {
        Self::new(format!("driver {name}"), driver)
    }

    /// A qdisc, called `qdisc NAME` in panics.
    pub fn qdisc(name: &str, qdisc: D) -> Self {
        Self::new(format!("qdisc {name}"), qdisc)
    }

    fn new(name: String, driver: D) -> Self {
        let check = Check {
            holder: Holder::new(&*name),
            name,
            slots: usize::MAX,
            inside: HashSet::new(),
            exact: true,
        };
        Checked { driver, check }
    }

    /// Declares the slots of a driver's ring: one that holds more packets after a call has kept
    /// some past their completion. 0: it is done with its packets when `xmit` returns.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.check.slots = slots;
        self
    }
}

impl<D> fmt::Debug for Checked<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checked").field(&self.check.name).finish()
    }
}

impl Check {
    /// Panics with the name and `deed` if `number` is not 0.
    fn none(&self, number: impl Into<u64>, deed: &str) {
        let number = number.into();
        assert!(number == 0, "{}: {deed}: {number}", self.name);
    }

    fn ensure(&self, holds: bool, deed: &str) {
        assert!(holds, "{}: {deed}", self.name);
    }

    /// The list's packets are live, and as many as it says.
    fn intact(&self, packets: &PacketList) {
        let (mut links, mut bytes) = (0, 0);
        for packet in packets.iter().take(packets.len() + 1) {
            self.ensure(packet.is_live(), "left a freed packet in a list");
            links += 1;
            bytes += packet.len() as u64;
        }
        self.ensure(
            (links, bytes) == (packets.len(), packets.bytes()),
            "left a list with a wrong count",
        );
    }
}

impl Drop for Check {
    /// The driver or qdisc has ended: it holds nothing any more, at once or soon (a thread of its
    /// own may free the last packets).
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_secs(5);
        while self.holder.held() != 0 && !std::thread::panicking() {
            if Instant::now() > patience {
                let deed = "ended and holds packets";
                return self.none(self.holder.held() as u64, deed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
