//! The list of operations that take rights.

use std::error::Error;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::{Ledger, Privileged, Subject};
use crate::NetnsSpec;

/// An answer as it goes over the channel; the reason, if it is refused.
pub(super) type Answered = Result<(serde_json::Value, Vec<OwnedFd>), Box<dyn Error + Send + Sync>>;

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($operation:ty),)*) => {
        /// An operation that takes rights.
        #[derive(Debug, Serialize, Deserialize)]
        pub enum Request {
            $($(#[$doc])* $name($operation),)*
        }

        $(impl From<$operation> for Request {
            fn from(operation: $operation) -> Request {
                Request::$name(operation)
            }
        })*

        impl Request {
            /// See [`Privileged::subject`].
            pub(super) fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
                match self {
                    $(Request::$name(operation) => operation.subject(place),)*
                }
            }

            /// See [`Privileged::OF_NETWORK`].
            pub(super) fn is_of_network(&self) -> bool {
                match self {
                    $(Request::$name(_) => <$operation>::OF_NETWORK,)*
                }
            }

            pub(super) fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger) -> Answered {
                match self {
                    $(Request::$name(operation) => {
                        let (answer, files) = operation.perform(files, ledger)?;
                        Ok((serde_json::to_value(answer)?, files))
                    })*
                }
            }
        }
    };
}

requests! {
    /// Makes a TAP device.
    Tap(crate::tap::Make),
    /// Opens packet sockets of an interface.
    AfPacket(crate::af_packet::Open),
    /// Opens XDP sockets for an interface.
    AfXdp(crate::af_xdp::Open),
    /// Leads an interface's frames to XDP sockets.
    AfXdpAttach(crate::af_xdp::Attach),
    /// Changes settings of an interface that was made before.
    Interface(super::Change),
    /// Makes a Unix socket that listens.
    Listen(crate::listener::Bind),
    /// Removes the file of such a socket.
    Forget(crate::listener::Forget),
    /// Takes over such a socket of another process.
    Adopt(crate::listener::Adopt),
    /// Connects to a Unix socket.
    Connect(crate::listener::Connect),
    /// Replaces a file.
    Write(super::write::WriteFile),
    /// Starts passt.
    Passt(super::passt::Start),
    /// Waits for the end of passt.
    PasstEnd(super::passt::End),
    /// Has a socket listen where metrics are to be had.
    Metrics(crate::listener::ListenForMetrics),
    /// Makes a datagram socket.
    Datagram(crate::listener::Datagram),
    /// Opens a file of packets.
    Packets(crate::pcap::OpenFile),
    /// Says where devices are made from now on.
    Home(super::server::Home),
}

/// A request, and the network namespace that it is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requested {
    /// Ours, if `None`.
    pub(super) place: Option<NetnsSpec>,
    /// An answer is waited for.
    pub(super) answer: bool,
    /// The operation.
    pub(super) request: Request,
}

/// A message that goes back.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Some of the files of an answer; more follows.
    Files,
    /// The answer, with the rest of its files.
    Done(serde_json::Value),
    /// The reason why there is none.
    Refused {
        /// In words.
        text: String,
        /// The system's error number, if there was one.
        errno: Option<i32>,
    },
}

impl Reply {
    pub(super) fn refused(error: &(dyn Error + 'static)) -> Reply {
        let mut text = error.to_string();
        let (mut errno, mut cause) = (errno(error), error.source());
        while let Some(error) = cause {
            let next = error.to_string();
            // Some errors repeat their cause in their own text.
            if !text.ends_with(&next) {
                text = text + ": " + &next;
            }
            errno = errno.or_else(|| self::errno(error));
            cause = error.source();
        }
        Reply::Refused { text, errno }
    }
}

fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    error.downcast_ref::<std::io::Error>()?.raw_os_error()
}
