//! The list of drivers, and the types that stand for any of them.
//!
//! A driver is a folder with its [`Driver`] (the parameters that are its own, and how a device is
//! opened and changed) and its queues, and a line of `drivers!` here. [`PortRx`] and [`PortTx`] are
//! chosen by `match`: no indirect call on the packet path.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet::tx::{Ingress, RingFile, RingWaker, Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_engine::{Devices, Link, Opened, Settings, Virtual, VlanTag};

use crate::Buffers;
use crate::af_packet::{AfPacketRx, AfPacketSpec, AfPacketTx};
use crate::af_xdp::{AfXdpRx, AfXdpSpec, AfXdpTx};
use crate::dgram::{DgramRx, DgramSpec, DgramTx};
use crate::driver::Driver;
use crate::hand_off::{HandOff, HandOffs, OpenDevice};
use crate::null::{NullRx, NullSpec, NullTx};
use crate::pcap::{PcapRx, PcapSpec, PcapTx};
use crate::rights::Subject;
use crate::stream::{StreamRx, StreamSpec, StreamTx};
use crate::tap::{TapRx, TapSpec, TapTx};
use crate::vhost_user::{VhostUserRx, VhostUserSpec, VhostUserTx};
use crate::virtual_link::{GivingTx, NoRx, VirtualSpec};

/// Makes of the list of drivers the types that stand for any of them.
macro_rules! drivers {
    ($($(#[$doc:meta])* $driver:ident($spec:ty, $rx:ty, $tx:ty),)*) => {
        /// A driver and its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum DeviceSpec {
            $($(#[$doc])* $driver($spec),)*
        }

        impl DeviceSpec {
            /// Things that the device opens of others, which are not opened unless the
            /// configuration has them.
            pub fn subjects(&self) -> Vec<Subject> {
                match self {
                    $(DeviceSpec::$driver(spec) => spec.subjects(),)*
                }
            }

            /// Smallest and largest MTU of the device.
            pub fn mtus(&self) -> (u32, u32) {
                match self {
                    $(DeviceSpec::$driver(spec) => spec.mtus(),)*
                }
            }
        }

        /// A device cannot be opened or changed.
        #[derive(Debug, thiserror::Error)]
        pub enum DeviceError {
            $($(#[$doc])* #[error(transparent)] $driver(<$spec as Driver>::Error),)*
        }

        /// The receive queue of any driver.
        #[derive(Debug)]
        pub enum PortRx {
            $($(#[$doc])* $driver($rx),)*
        }

        /// The transmit queue of any driver.
        #[derive(Debug)]
        pub enum PortTx {
            $($(#[$doc])* $driver($tx),)*
        }

        $(
            impl From<$spec> for DeviceSpec {
                fn from(spec: $spec) -> Self {
                    DeviceSpec::$driver(spec)
                }
            }

            impl From<$rx> for PortRx {
                fn from(queue: $rx) -> Self {
                    PortRx::$driver(queue)
                }
            }

            impl From<$tx> for PortTx {
                fn from(queue: $tx) -> Self {
                    PortTx::$driver(queue)
                }
            }
        )*

        #[deny(clippy::missing_trait_methods)]
        impl RxQueue for PortRx {
            fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
                match self {
                    $(PortRx::$driver(queue) => queue.poll(rx),)*
                }
            }

            fn arm(&mut self) -> bool {
                match self {
                    $(PortRx::$driver(queue) => queue.arm(),)*
                }
            }

            fn peek(&mut self) -> bool {
                match self {
                    $(PortRx::$driver(queue) => queue.peek(),)*
                }
            }

            fn pools(&self) -> Vec<&Pool> {
                match self {
                    $(PortRx::$driver(queue) => queue.pools(),)*
                }
            }

            fn link(&self) -> Option<Arc<dyn Link>> {
                match self {
                    $(PortRx::$driver(queue) => queue.link(),)*
                }
            }

            fn fd(&self) -> Option<BorrowedFd<'_>> {
                match self {
                    $(PortRx::$driver(queue) => queue.fd(),)*
                }
            }
        }

        #[deny(clippy::missing_trait_methods)]
        impl TxRing for PortTx {
            fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
                match self {
                    $(PortTx::$driver(queue) => queue.xmit(packets, sent),)*
                }
            }

            fn available(&mut self, now: Time) -> Option<u64> {
                match self {
                    $(PortTx::$driver(queue) => queue.available(now),)*
                }
            }

            fn restart(&mut self, now: Time) {
                match self {
                    $(PortTx::$driver(queue) => queue.restart(now),)*
                }
            }

            fn bind(&mut self, waker: RingWaker) {
                match self {
                    $(PortTx::$driver(queue) => queue.bind(waker),)*
                }
            }

            fn connect(&mut self, to: Arc<dyn Ingress>) {
                match self {
                    $(PortTx::$driver(queue) => queue.connect(to),)*
                }
            }

            fn file(&self) -> io::Result<Option<RingFile>> {
                match self {
                    $(PortTx::$driver(queue) => queue.file(),)*
                }
            }
        }

        impl Devices for PortDevices {
            type Rx = PortRx;
            type Tx = PortTx;
            type Spec = DeviceSpec;
            type Error = DeviceError;

            fn open(
                &self,
                spec: &DeviceSpec,
                settings: &Settings,
                queues: usize,
            ) -> Result<Opened<PortRx, PortTx>, DeviceError> {
                let handed = self.hand_offs.take(spec);
                match spec {
                    $(DeviceSpec::$driver(own) => {
                        let resumed = handed.and_then(|handed| {
                            own.resume(settings, queues, &self.buffers, handed).ok()
                        });
                        let opened = match resumed {
                            Some(resumed) => Ok(resumed),
                            None => own.open(settings, queues, &self.buffers),
                        };
                        let opened = opened.map_err(DeviceError::$driver)?;
                        if let Some(device) = own.continued(&opened) {
                            self.hand_offs.note(&settings.name, spec, device);
                        }
                        Ok(any(opened))
                    })*
                }
            }

            fn close(&self, rings: Vec<PortTx>) {
                close_at_once(rings);
            }

            fn change(
                &self,
                spec: &DeviceSpec,
                before: &Settings,
                after: &Settings,
            ) -> Result<(), DeviceError> {
                match spec {
                    $(DeviceSpec::$driver(spec) => {
                        spec.change(before, after).map_err(DeviceError::$driver)
                    })*
                }
            }

            fn conflict(&self, one: &DeviceSpec, other: &DeviceSpec) -> bool {
                match (one, other) {
                    $((DeviceSpec::$driver(one), DeviceSpec::$driver(other)) => {
                        one.conflicts(other)
                    })*
                    _ => false,
                }
            }

            fn of_kind(&self, kind: &str, name: &str) -> Option<DeviceSpec> {
                let none = None::<DeviceSpec>;
                $(let none = none.or_else(|| <$spec>::of_kind(kind, name).map(Into::into));)*
                none
            }

            fn is_of_host(&self, spec: &DeviceSpec) -> bool {
                match spec {
                    $(DeviceSpec::$driver(_) => <$spec>::IS_OF_HOST,)*
                }
            }

            fn kind(&self, spec: &DeviceSpec) -> Option<&'static str> {
                match spec {
                    $(DeviceSpec::$driver(spec) => spec.kind(),)*
                }
            }

            fn no_queue(&self, spec: &DeviceSpec) -> bool {
                match spec {
                    $(DeviceSpec::$driver(spec) => spec.no_queue(),)*
                }
            }

            fn mtus(&self, spec: &DeviceSpec) -> (u32, u32) {
                spec.mtus()
            }

            fn is_foreign(&self, spec: &DeviceSpec) -> bool {
                match spec {
                    $(DeviceSpec::$driver(spec) => spec.is_foreign(),)*
                }
            }

            fn virtual_link(&self, spec: &DeviceSpec) -> Option<Virtual> {
                match spec {
                    $(DeviceSpec::$driver(spec) => spec.virtual_link(),)*
                }
            }

            fn vlan(&self, parent: &str, tag: VlanTag) -> Option<DeviceSpec> {
                let parent = parent.to_owned();
                Some(VirtualSpec(Virtual::Vlan { parent, tag }).into())
            }

            fn rename_parent(&self, spec: &mut DeviceSpec, name: &str) {
                match spec {
                    $(DeviceSpec::$driver(spec) => spec.rename_parent(name),)*
                }
            }
        }
    };
}

drivers! {
    /// A kernel TAP device.
    Tap(TapSpec, TapRx, TapTx),
    /// A virtual machine's network device.
    VhostUser(VhostUserSpec, VhostUserRx, VhostUserTx),
    /// An interface of the kernel.
    AfPacket(AfPacketSpec, AfPacketRx, AfPacketTx),
    /// An interface of the kernel, by XDP.
    AfXdp(AfXdpSpec, AfXdpRx, AfXdpTx),
    /// A process with a stream socket.
    Stream(StreamSpec, StreamRx, StreamTx),
    /// A process with a datagram socket.
    Dgram(DgramSpec, DgramRx, DgramTx),
    /// Files of packets.
    Pcap(PcapSpec, PcapRx, PcapTx),
    /// No device: swallows what is sent, receives nothing.
    Null(NullSpec, NullRx, NullTx),
    /// A link without a device.
    Virtual(VirtualSpec, NoRx, GivingTx),
}

impl Default for DeviceSpec {
    fn default() -> DeviceSpec {
        DeviceSpec::Null(NullSpec)
    }
}

/// Devices of every driver of this crate.
#[derive(Debug)]
pub struct PortDevices {
    /// Pools that received frames go to.
    pub buffers: Buffers,
    hand_offs: HandOffs,
}

impl PortDevices {
    /// Devices that receive into these pools.
    pub fn new(buffers: Buffers) -> PortDevices {
        PortDevices {
            buffers,
            hand_offs: HandOffs::default(),
        }
    }

    /// The open devices with which another process can go on.
    pub fn open_devices(&self) -> Vec<OpenDevice> {
        self.hand_offs.open()
    }

    /// Devices opened so far, and those that are open, with which another process could go on: none
    /// of both changes while none comes or goes.
    pub fn openings(&self) -> (u64, usize) {
        self.hand_offs.openings()
    }

    /// Has a device be opened from what was handed off, when it is opened next.
    pub fn give(&self, spec: DeviceSpec, handed: HandOff) {
        self.hand_offs.give(spec, handed);
    }

    /// The other process is gone, or has failed: closes what was given and not opened; files of
    /// sockets go with their devices from now on.
    pub fn own(&self) {
        self.hand_offs.clear();
        self.hand_offs.own();
    }
}

/// Threads that close devices at once, each with as much stack.
const CLOSING: usize = 128;
const CLOSING_STACK: usize = 64 * 1024;

/// Closes what the system takes long to close, from many threads. Before a network device is gone
/// the kernel waits for all of its CPUs to have let go of it, some 20 ms; those who wait at the
/// same time wait for the same.
fn close_at_once<T: Send>(mut files: Vec<T>) {
    let threads = files.len().min(CLOSING);
    if threads < 2 {
        return;
    }
    let share = files.len().div_ceil(threads);
    std::thread::scope(|scope| {
        while !files.is_empty() {
            let some = files.split_off(files.len().saturating_sub(share));
            let thread = std::thread::Builder::new().name("close".to_owned());
            // Where no thread can be made, they are closed here.
            let _ = thread
                .stack_size(CLOSING_STACK)
                .spawn_scoped(scope, || drop(some));
        }
    });
}

/// The queues of a driver as those of any.
fn any<Q: Into<PortRx>, R: Into<PortTx>>(opened: Opened<Q, R>) -> Opened<PortRx, PortTx> {
    let Opened { rx, tx, features } = opened;
    Opened {
        rx: rx.into_iter().map(Into::into).collect(),
        tx: tx.into_iter().map(Into::into).collect(),
        features,
    }
}
