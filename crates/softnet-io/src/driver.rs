//! The contract of a driver with a configuration.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Weak;

use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::rx::RxQueue;
use softnet_engine::{Opened, Settings, Virtual};

use crate::Buffers;
use crate::hand_off::{Continued, HandOff};
use crate::rights::Subject;

/// Smallest and largest MTU of an Ethernet device: the longest IP packet of a frame of 65,535
/// bytes.
pub const ETHERNET_MTUS: (u32, u32) = (68, 65_521);
/// Smallest and largest MTU of a link without a medium (`dummy`, `ifb`): all that there are.
pub const ALL_MTUS: (u32, u32) = (0, i32::MAX as u32);

/// Drops everything: nobody receives.
pub(crate) fn down(packets: &mut PacketList, sent: &mut Sent) -> Xmit {
    let down = packets.take();
    down.iter()
        .for_each(|packet| sent.drop(DropReason::DeviceDown, packet));
    Xmit::Complete
}

/// A driver: a value is one device with its parameters.
pub trait Driver: Clone + Debug + PartialEq + Send {
    /// Receive queues.
    type Rx: RxQueue;
    /// Transmit queues.
    type Tx: TxRing;
    /// Reason why a device cannot be opened or changed.
    type Error: Error + Send + Sync + 'static;

    /// Kind of link that it stands for, as `ip link` names it; `None` for one that `ip` knows no
    /// kind for.
    const KIND: Option<&'static str> = None;
    /// Opening a device makes one that programs of the host see and may use.
    const IS_OF_HOST: bool = false;
    /// A link has no queue of its own until it is given a qdisc (`IFF_NO_QUEUE`: `noqueue` is its
    /// default).
    const NO_QUEUE: bool = false;
    /// Smallest and largest MTU.
    const MTUS: (u32, u32) = ETHERNET_MTUS;

    /// Things that the device opens of others, which are not opened unless the configuration has
    /// them.
    fn subjects(&self) -> Vec<Subject> {
        Vec::new()
    }

    /// Opens a device with so many queues each way. May block for the kernel to make an interface.
    ///
    /// # Errors
    /// If it cannot be opened; it does not exist then.
    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<Self::Rx, Self::Tx>, Self::Error>;

    /// An open device, if another process can go on with it.
    fn continued(&self, _opened: &Opened<Self::Rx, Self::Tx>) -> Option<Weak<dyn Continued>> {
        None
    }

    /// As [`open`](Driver::open), from what another process handed off.
    ///
    /// # Errors
    /// If these are not the device's; `handed` is closed then.
    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<Self::Rx, Self::Tx>, Self::Error> {
        drop(handed);
        self.open(settings, queues, buffers)
    }

    /// Has an open device follow the settings of its link, as far as it has such settings. Most
    /// have none that this side could change.
    ///
    /// # Errors
    /// If it cannot follow; it has the settings that it had before then.
    fn change(&self, _before: &Settings, _after: &Settings) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The two devices cannot be there at once: interfaces of a name in one namespace, sockets of a
    /// path.
    fn conflicts(&self, other: &Self) -> bool;

    /// Kind of link that this device stands for.
    fn kind(&self) -> Option<&'static str> {
        Self::KIND
    }

    /// See [`NO_QUEUE`](Driver::NO_QUEUE), for this device.
    fn no_queue(&self) -> bool {
        Self::NO_QUEUE
    }

    /// Smallest and largest MTU of this device.
    fn mtus(&self) -> (u32, u32) {
        Self::MTUS
    }

    /// The device is an interface that is there, and left as it is: its MTU is followed, and nobody
    /// changes MTU and address through the link.
    fn is_foreign(&self) -> bool {
        false
    }

    /// The link without a device that it stands for.
    fn virtual_link(&self) -> Option<Virtual> {
        None
    }

    /// The link below a VLAN link has another name.
    fn rename_parent(&mut self, _name: &str) {}

    /// The device behind a link that `ip link add NAME type KIND` makes.
    fn of_kind(_kind: &str, _name: &str) -> Option<Self> {
        None
    }
}
