//! The devices behind ports, as the control path opens and changes them.

use std::error::Error;
use std::fmt::Debug;

use super::Settings;
use crate::rx::RxQueue;
use softnet::tx::{Features, TxRing};

/// The queues of an open device.
#[derive(Debug)]
pub struct Opened<Q, R> {
    /// Receive queues.
    pub rx: Vec<Q>,
    /// Transmit queues.
    pub tx: Vec<R>,
    /// What the driver does by itself.
    pub features: Features,
}

/// Opens devices and passes on what the control path changes of them.
pub trait Devices: Debug + Send + 'static {
    /// A receive queue of any driver.
    type Rx: RxQueue + Debug + 'static;
    /// A transmit queue of any driver.
    type Tx: TxRing + Debug + 'static;
    /// A driver and its parameters.
    type Spec: Clone + Debug + Default + PartialEq + Send;
    /// Why a device cannot be opened or changed.
    type Error: Error + Send + Sync + 'static;

    /// Opens a device with so many queues each way. Control path: may block for the kernel to
    /// make an interface.
    ///
    /// # Errors
    /// If it cannot be opened; it does not exist then.
    fn open(
        &self,
        spec: &Self::Spec,
        settings: &Settings,
        queues: usize,
    ) -> Result<Opened<Self::Rx, Self::Tx>, Self::Error>;

    /// Has an open device follow the settings of its link, as far as it has such settings.
    ///
    /// # Errors
    /// If it cannot follow; it has the settings that it had before then.
    fn change(
        &self,
        spec: &Self::Spec,
        before: &Settings,
        after: &Settings,
    ) -> Result<(), Self::Error>;

    /// Whether two devices cannot be there at once: interfaces of a name in one namespace, sockets
    /// of a path.
    fn conflict(&self, one: &Self::Spec, other: &Self::Spec) -> bool;

    /// The driver behind a kind of link, as `ip link add NAME type KIND` names it.
    fn of_kind(&self, kind: &str, name: &str) -> Option<Self::Spec>;

    /// Whether opening a device makes one that programs of the host see and may use.
    fn is_of_host(&self, spec: &Self::Spec) -> bool;

    /// The kind of link that a driver stands for; `None` for one that `ip` knows no kind for.
    fn kind(&self, spec: &Self::Spec) -> Option<&'static str>;

    /// Whether a link of this driver has no queue of its own until it is given a qdisc
    /// (`IFF_NO_QUEUE`: `noqueue` is its default).
    fn no_queue(&self, spec: &Self::Spec) -> bool;

    /// Smallest and largest MTU.
    fn mtus(&self, spec: &Self::Spec) -> (u32, u32);
}
