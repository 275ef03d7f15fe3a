//! Virtqueues, the device's side (virtio 1.2, 2.7 split and 2.8 packed).
//!
//! A [`Virtqueue`] carries packets one way. [`receive`](Virtqueue::receive) copies frames that the
//! guest sends into packets; [`transmit`](Virtqueue::transmit) copies packets into buffers that the
//! guest offers. Both work in batches: heads first, then descriptors, then bytes, then one store
//! that gives all of the batch back to the guest. They tell the guest nothing: after a round, ask
//! [`must_notify`](Virtqueue::must_notify) and then write the queue's `call` event.
//!
//! ```text
//! receiving worker                     owner of the transmit queue
//! disarm()                             transmit(..) -> Busy: arm(); false: transmit again
//! receive(..) -> more                  must_notify() -> write `call`
//! must_notify() -> write `call`
//! no more: arm(); false: receive again
//! ```
//!
//! **Nothing is in flight between calls.** Chains are given back in the order in which they were
//! taken, before the call that took them returns; a chain that was not needed is simply not taken.
//! So one position ([`base`](Virtqueue::base)) says where a queue is, `VIRTIO_F_IN_ORDER` is kept
//! whether it was negotiated or not, and a queue always starts where the ring in guest memory
//! shows that the last one stopped or was killed, whatever the front end says; no record is needed
//! elsewhere. Of a split ring the used index shows it, of a packed one the descriptors' flags
//! (`packed`).
//!
//! **The guest is hostile.** What is used of a field of a ring is one read of it (a descriptor that
//! is not taken with its line, or is not alone in its chain, is read anew), each index and length
//! is checked, chains are bounded. The first thing that no driver does ends the queue with a
//! [`RingError`], which all later calls return, too. A frame that is merely bad is dropped with a
//! reason.

#[cfg(all(test, loom))]
mod cells;
mod chain;
#[cfg(all(test, not(miri)))]
mod crash_tests;
mod frames;
#[cfg(all(test, not(miri)))]
mod hostile_tests;
#[cfg(all(test, not(miri)))]
mod model;
mod notify;
#[cfg(all(test, loom))]
mod notify_models;
#[cfg(all(test, not(miri)))]
mod notify_tests;
mod packed;
#[cfg(all(test, loom))]
mod packed_models;
mod split;
#[cfg(all(test, not(miri)))]
pub(super) mod tests;

use softnet::mem::PacketList;
use softnet::tx::{Features, Sent, Xmit};
use softnet::wire::MAX_FRAME;
use softnet_engine::rx::Receive;

use self::chain::{Batch, MAX_CHAIN, MAX_SPANS};
use self::packed::Packed;
use self::split::Split;
use super::memory::{GuestArea, GuestMemory, MemoryError, OutOfRange};
use crate::Buffers;

pub use self::frames::WORK;

/// An Ethernet header with two VLAN tags.
const LINK_HEADER: usize = 14 + 8;

/// The most descriptors of a ring.
pub const MAX_SIZE: u16 = 32_768;

/// Where a queue is and what was negotiated for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingConfig {
    /// Descriptors: 1 to [`MAX_SIZE`], and a power of two if it is a split ring.
    pub size: u16,
    /// The descriptors, at an address of the front end.
    pub descriptors: u64,
    /// The area that the driver writes: the available ring, or its event suppression.
    pub driver: u64,
    /// The area that the device writes: the used ring, or its event suppression.
    pub device: u64,
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_RING_F_INDIRECT_DESC`.
    pub indirect: bool,
    /// `VIRTIO_RING_F_EVENT_IDX`.
    pub event_index: bool,
    /// `VIRTIO_F_IN_ORDER`.
    pub in_order: bool,
    /// `VIRTIO_NET_F_MRG_RXBUF`: a frame may be spread over several chains.
    pub mergeable: bool,
    /// Offloads that the guest's driver takes; the MTU is not used.
    pub takes: Features,
}

/// Why a queue cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A ring cannot have that many descriptors.
    #[error("a ring of {0} descriptors is not possible")]
    BadSize(u16),
    /// The descriptors of a packed ring are not of the order in which a driver writes them, but
    /// for the moment in which it writes a chain: look again.
    #[error("the guest has left out descriptors of a packed ring")]
    LeftOut,
    /// A part of it is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A breach of the protocol by a driver. The queue is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// More chains are said to be available than there are descriptors.
    #[error("the available index runs: {0} chains in a ring of fewer descriptors")]
    IndexRuns(u16),
    /// A descriptor that the ring or the indirect table does not have.
    #[error("descriptor {0} is outside of its table")]
    BadDescriptor(u16),
    /// It has a loop, or is longer than the ring, or than any driver makes one.
    #[error("a chain has more descriptors than its table, or than {MAX_CHAIN}")]
    EndlessChain,
    /// A chain whose buffers cross borders of memory regions more often than any driver's.
    #[error("a chain in more than {MAX_SPANS} pieces of guest memory")]
    Scattered,
    /// More than 4 GiB.
    #[error("a chain of more than 4 GiB")]
    LongChain,
    /// A buffer to be read where one to be written was due, or the other way round.
    #[error("a buffer of the wrong direction")]
    WrongDirection,
    /// An indirect table that was not negotiated, is empty, cut, too long, in another such table,
    /// or continued.
    #[error("an indirect table that is not possible")]
    BadIndirect,
    /// A buffer or an indirect table outside of guest memory.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// The device's side of one queue. Used by one thread at a time.
#[derive(Debug)]
pub struct Virtqueue {
    ring: AnyRing,
    config: RingConfig,
    /// The chains in work; empty between calls, kept for its memory.
    batch: Batch<'static>,
    /// Empty small buffers for frames to come.
    fresh: PacketList,
    /// The longest frame that is received, unless it is a large one (GSO).
    longest: usize,
    /// True if the guest was last told to notify.
    armed: bool,
    failed: Option<RingError>,
}

#[derive(Debug)]
enum AnyRing {
    Split(Split<GuestArea>),
    Packed(Packed<GuestArea>),
}

/// The three parts of a ring.
#[derive(Debug)]
struct Areas<A> {
    descriptors: A,
    driver: A,
    device: A,
}

impl Areas<GuestArea> {
    fn new(config: &RingConfig, memory: &GuestMemory) -> Result<Self, MemoryError> {
        let n = usize::from(config.size);
        // Bytes and alignment of what the driver and the device write: virtio 1.2, 2.7 and 2.8.
        let (driver, device) = if config.packed {
            ((4, 4), (4, 4))
        } else {
            ((6 + 2 * n, 2), (6 + 8 * n, 4))
        };
        Ok(Areas {
            descriptors: memory.area(config.descriptors, 16 * n, 16)?,
            driver: memory.area(config.driver, driver.0, driver.1)?,
            device: memory.area(config.device, device.0, device.1)?,
        })
    }
}

/// The operations of both kinds of ring.
trait Ring {
    /// Appends chains that follow those of the batch: all that are available, at most `max`, fewer
    /// if they are long. `writable`: whether their buffers are for the device to write.
    ///
    /// # Errors
    /// If a chain is not possible; those before it are in the batch.
    fn take<'m>(
        &mut self,
        memory: &'m GuestMemory,
        writable: bool,
        max: usize,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingError>;

    /// Gives the first `n` chains of the batch back to the driver, all at once.
    fn complete(&mut self, batch: &Batch<'_>, n: usize);

    /// See [`Virtqueue::peek`].
    fn peek(&self) -> bool;
    /// See [`Virtqueue::arm`].
    fn arm(&mut self) -> bool;
    /// See [`Virtqueue::disarm`].
    fn disarm(&mut self);
    /// See [`Virtqueue::must_notify`].
    fn must_notify(&mut self) -> bool;
    /// See [`Virtqueue::base`].
    fn base(&self) -> u32;
}

/// Does the same with either kind of ring.
macro_rules! with {
    ($any:expr, $ring:ident => $body:expr) => {
        match $any {
            AnyRing::Split($ring) => $body,
            AnyRing::Packed($ring) => $body,
        }
    };
}

impl Virtqueue {
    /// A queue, disarmed, that starts where the ring is.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(config: RingConfig, memory: &GuestMemory) -> Result<Virtqueue, SetupError> {
        Virtqueue::make(config, memory, None)
    }

    /// True if this is where the ring of this one is, so that it can be [renewed](Self::renew).
    pub fn has_ring(&self, config: &RingConfig) -> bool {
        let ring = |config: &RingConfig| (config.packed, config.size, config.descriptors);
        ring(config) == ring(&self.config)
    }

    /// A queue in the place of this one: in other memory, or with other features. It goes on where
    /// this one is, so that the driver may be writing meanwhile.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn renew(
        &self,
        config: RingConfig,
        memory: &GuestMemory,
    ) -> Result<Virtqueue, SetupError> {
        let same = self.has_ring(&config);
        Virtqueue::make(config, memory, same.then_some(&self.ring))
    }

    fn make(
        config: RingConfig,
        memory: &GuestMemory,
        before: Option<&AnyRing>,
    ) -> Result<Virtqueue, SetupError> {
        let size = config.size;
        let possible = if config.packed {
            (1..=MAX_SIZE).contains(&size)
        } else {
            size.is_power_of_two() && size <= MAX_SIZE
        };
        if !possible {
            return Err(SetupError::BadSize(size));
        }
        let areas = Areas::new(&config, memory)?;
        let ring = if let Some(AnyRing::Packed(before)) = before {
            AnyRing::Packed(before.renew(&config, areas))
        } else if config.packed {
            AnyRing::Packed(Packed::new(&config, areas).ok_or(SetupError::LeftOut)?)
        } else {
            AnyRing::Split(Split::new(&config, areas))
        };
        let mut queue = Virtqueue {
            ring,
            config,
            batch: Batch::default(),
            fresh: PacketList::new(),
            longest: MAX_FRAME,
            armed: true,
            failed: None,
        };
        queue.disarm();
        Ok(queue)
    }

    /// Where the queue is: what `GET_VRING_BASE` answers.
    pub fn base(&self) -> u32 {
        with!(&self.ring, ring => ring.base())
    }

    /// The error that ended the queue.
    pub fn failed(&self) -> Option<RingError> {
        self.failed
    }

    /// The longest IP packet of frames that are received, which may have two VLAN tags: a longer
    /// frame is dropped as it lies there, unless it is said to be a large one. No limit at first.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.longest = (mtu as usize).saturating_add(LINK_HEADER);
    }

    /// Receives frames that the guest has sent until they stand for `rx.budget` wire packets or
    /// more. Their virtio-net headers are applied; `queue` is recorded in them.
    /// What does not pass is dropped, and uses budget, too. True: more may be
    /// waiting.
    ///
    /// # Errors
    /// If the guest broke the ring, now or before. `rx` has what came before that.
    pub fn receive(
        &mut self,
        memory: &GuestMemory,
        buffers: &Buffers,
        queue: Option<u16>,
        rx: &mut Receive<'_>,
    ) -> Result<bool, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut receiver = frames::Receiver {
            memory,
            buffers,
            queue,
            payload: buffers.small.payload_size(),
            fresh: &mut self.fresh,
            longest: self.longest,
        };
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let result = with!(&mut self.ring, ring => receiver.receive(ring, &mut batch, rx));
        self.batch = batch.recycle();
        result.inspect_err(|&error| self.failed = Some(error))
    }

    /// Transmits: copies packets from the front of `packets` into buffers of the guest, in order,
    /// each behind its virtio-net header, and frees them. [`Xmit::Busy`]: the guest has to offer
    /// more buffers, or `work` is 0; the rest is still in the list. A packet that the guest's
    /// buffers can never hold is dropped. `work`: how many spans of memory are looked at before
    /// others have their turn ([`WORK`] for one run); the guest chooses how many a packet takes.
    /// The first packet is looked at all the same.
    ///
    /// # Errors
    /// If the guest broke the ring, now or before. What was not sent is still in the list.
    pub fn transmit(
        &mut self,
        memory: &GuestMemory,
        packets: &mut PacketList,
        sent: &mut Sent,
        work: &mut usize,
    ) -> Result<Xmit, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut transmitter = frames::Transmitter {
            memory,
            config: &self.config,
            work,
        };
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let result =
            with!(&mut self.ring, ring => transmitter.transmit(ring, &mut batch, packets, sent));
        self.batch = batch.recycle();
        result.inspect_err(|&error| self.failed = Some(error))
    }

    /// True if chains are available. Says nothing about those that [`arm`](Virtqueue::arm) does not
    /// notify about: a packet that has to wait for more buffers than the guest offers.
    pub fn peek(&self) -> bool {
        self.failed.is_none() && with!(&self.ring, ring => ring.peek())
    }

    /// Asks the guest for a notification (a `kick`) when it makes chains available beyond those
    /// that the last call saw. False: it did meanwhile; there may be none.
    pub fn arm(&mut self) -> bool {
        self.armed = true;
        self.failed.is_some() || with!(&mut self.ring, ring => ring.arm())
    }

    /// Tells the guest that it need not notify. Once: the guest reads what is written next to it,
    /// or with it, for each batch.
    pub fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            with!(&mut self.ring, ring => ring.disarm());
        }
    }

    /// True if the guest wants to be notified (by a `call`) of buffers given back since this was
    /// last asked.
    pub fn must_notify(&mut self) -> bool {
        with!(&mut self.ring, ring => ring.must_notify())
    }
}
