//! The driver `af_xdp` in an engine.

use softnet_engine::{Opened, Settings};

use super::{AfXdp, AfXdpError, AfXdpRx, AfXdpTx, MAX_MTU};
use crate::driver::{Driver, ETHERNET_MTUS};
use crate::interface;
use crate::rights::{AskError, Subject};
use crate::{Buffers, NetnsSpec};

/// An interface that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpSpec {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace that it is in; ours if none.
    pub netns: Option<NetnsSpec>,
}

impl AfXdpSpec {
    /// An interface of our namespace.
    pub fn new(interface: impl Into<String>) -> AfXdpSpec {
        AfXdpSpec {
            interface: interface.into(),
            netns: None,
        }
    }
}

impl Driver for AfXdpSpec {
    type Rx = AfXdpRx;
    type Tx = AfXdpTx;
    type Error = AskError<AfXdpError>;

    const MTUS: (u32, u32) = (ETHERNET_MTUS.0, MAX_MTU);

    fn subjects(&self) -> Vec<Subject> {
        vec![interface::subject(self.netns.as_ref(), &self.interface)]
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<AfXdpRx, AfXdpTx>, AskError<AfXdpError>> {
        let AfXdp {
            rx, tx, features, ..
        } = AfXdp::open(self, queues, settings.mtu, buffers)?;
        Ok(Opened { rx, tx, features })
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn conflicts(&self, other: &AfXdpSpec) -> bool {
        self == other
    }
}
