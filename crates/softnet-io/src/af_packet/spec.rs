//! The driver `af_packet` in an engine.

use std::sync::{Arc, Weak};

use softnet_engine::{Opened, Settings};

use super::{AfPacket, AfPacketError, AfPacketRx, AfPacketTx};
use crate::driver::Driver;
use crate::hand_off::{Continued, HandOff};
use crate::interface;
use crate::rights::{AskError, Subject};
use crate::{Buffers, NetnsSpec};

/// An interface that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketSpec {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace that it is in; ours if none.
    pub netns: Option<NetnsSpec>,
}

impl AfPacketSpec {
    /// An interface of our namespace.
    pub fn new(interface: impl Into<String>) -> AfPacketSpec {
        AfPacketSpec {
            interface: interface.into(),
            netns: None,
        }
    }
}

impl Driver for AfPacketSpec {
    type Rx = AfPacketRx;
    type Tx = AfPacketTx;
    type Error = AskError<AfPacketError>;

    fn subjects(&self) -> Vec<Subject> {
        vec![interface::subject(self.netns.as_ref(), &self.interface)]
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<AfPacketRx, AfPacketTx>, AskError<AfPacketError>> {
        let AfPacket {
            rx, tx, features, ..
        } = AfPacket::open(self, queues, settings.mtu, buffers)?;
        Ok(Opened { rx, tx, features })
    }

    fn continued(&self, opened: &Opened<AfPacketRx, AfPacketTx>) -> Option<Weak<dyn Continued>> {
        let link: Arc<dyn Continued> = opened.tx.first()?.link().clone();
        Some(Arc::downgrade(&link))
    }

    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<AfPacketRx, AfPacketTx>, AskError<AfPacketError>> {
        let AfPacket {
            rx, tx, features, ..
        } = AfPacket::with(self, queues, settings.mtu, buffers, &handed)?;
        Ok(Opened { rx, tx, features })
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn conflicts(&self, other: &AfPacketSpec) -> bool {
        self == other
    }
}
