//! The devices behind ports, as the control path opens and changes them.

use std::error::Error;
use std::fmt::{self, Debug};
use std::marker::PhantomData;

use super::spec::Settings;
use crate::forward::{Virtual, VlanTag};
use crate::rx::RxQueue;
use softnet::tx::{Features, TxRing};

/// The queues of an open device.
#[derive(Debug)]
pub struct Opened<Q, R> {
    /// Receive queues.
    pub rx: Vec<Q>,
    /// Transmit queues.
    pub tx: Vec<R>,
    /// Offloads and limits of the driver.
    pub features: Features,
}

/// The queues of an open device of these drivers.
pub type DeviceOf<D> = Opened<<D as Devices>::Rx, <D as Devices>::Tx>;

/// Opens devices and passes on what the control path changes of them.
pub trait Devices: Debug + Send + 'static {
    /// A receive queue of any driver.
    type Rx: RxQueue + 'static;
    /// A transmit queue of any driver.
    type Tx: TxRing + 'static;
    /// A driver and its parameters.
    type Spec: Clone + Debug + Default + PartialEq + Send;
    /// Reason why a device cannot be opened or changed.
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

    /// Closes transmit queues, the last that is left of their devices. Control path: returns when
    /// the devices are gone, for which the kernel may take tens of milliseconds each. A driver
    /// of such devices closes many of them at once.
    fn close(&self, rings: Vec<Self::Tx>) {
        drop(rings);
    }

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

    /// Two devices cannot be there at once: interfaces of a name in one namespace, sockets
    /// of a path.
    fn conflict(&self, one: &Self::Spec, other: &Self::Spec) -> bool;

    /// The driver behind a kind of link, as `ip link add NAME type KIND` names it.
    fn of_kind(&self, kind: &str, name: &str) -> Option<Self::Spec>;

    /// Opening a device makes one that programs of the host see and may use.
    fn is_of_host(&self, spec: &Self::Spec) -> bool;

    /// The kind of link that a driver stands for; `None` for one that `ip` knows no kind for.
    fn kind(&self, spec: &Self::Spec) -> Option<&'static str>;

    /// A link of this driver has no queue of its own until it is given a qdisc (`IFF_NO_QUEUE`:
    /// `noqueue` is its default).
    fn no_queue(&self, spec: &Self::Spec) -> bool;

    /// Smallest and largest MTU.
    fn mtus(&self, spec: &Self::Spec) -> (u32, u32);

    /// The device is an interface that is there, and left as it is: nobody changes its MTU and its
    /// address through the link, which follows its MTU.
    fn is_foreign(&self, _spec: &Self::Spec) -> bool {
        false
    }

    /// The link without a device that a driver stands for.
    fn virtual_link(&self, _spec: &Self::Spec) -> Option<Virtual> {
        None
    }

    /// The driver behind a VLAN of the link of a name.
    fn vlan(&self, _parent: &str, _tag: VlanTag) -> Option<Self::Spec> {
        None
    }

    /// The link below a VLAN link has another name.
    fn rename_parent(&self, _spec: &mut Self::Spec, _name: &str) {}
}

/// Devices of a program that opens its queues itself, and adds ports
/// [with them](super::Engine::add_port_with).
pub struct OwnQueues<Q, R>(PhantomData<fn() -> (Q, R)>);

impl<Q, R> fmt::Debug for OwnQueues<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnQueues")
    }
}

impl<Q, R> Default for OwnQueues<Q, R> {
    fn default() -> Self {
        OwnQueues(PhantomData)
    }
}

/// A program that opens its queues itself asked the engine to do so.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the program opens its devices itself")]
pub struct NoDriver;

impl<Q, R> Devices for OwnQueues<Q, R>
where
    Q: RxQueue + 'static,
    R: TxRing + 'static,
{
    type Rx = Q;
    type Tx = R;
    type Spec = ();
    type Error = NoDriver;

    fn open(&self, (): &(), _: &Settings, _: usize) -> Result<Opened<Q, R>, NoDriver> {
        Err(NoDriver)
    }

    fn change(&self, (): &(), _: &Settings, _: &Settings) -> Result<(), NoDriver> {
        Ok(())
    }

    fn conflict(&self, (): &(), (): &()) -> bool {
        false
    }

    fn of_kind(&self, _: &str, _: &str) -> Option<()> {
        None
    }

    fn is_of_host(&self, (): &()) -> bool {
        false
    }

    fn kind(&self, (): &()) -> Option<&'static str> {
        None
    }

    fn no_queue(&self, (): &()) -> bool {
        false
    }

    fn mtus(&self, (): &()) -> (u32, u32) {
        (0, u32::MAX)
    }
}
