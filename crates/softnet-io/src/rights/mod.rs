//! Privilege separation: a helper process has the rights, the daemon has none.
//!
//! A step for which a port needs rights (to make an interface, to enter a namespace, to open a raw
//! socket) is a `Privileged` operation: a small structure that is performed where the rights
//! are, and files that come back. [`start_helper`] starts the process that performs them, from then
//! on, for this process, or [`connect_helper`] connects to one that runs
//! ([`attend`](fn@attend)); [`confine`] takes this process's own rights away. Without a helper an
//! operation is performed by the caller: who embeds this crate needs none.
//!
//! The helper trusts nobody: each request is bounded and checked where it arrives. It ends when
//! this process does. If it dies, what is open stays so, and what would have to be opened fails
//! with [`AskError::Gone`]; it is not started again, as what killed it may be an attack.
//!
//! Rights belong to a process, and so does the helper: there is one for all engines in it.

mod attend;
mod channel;
mod client;
mod confine;
mod interface;
mod ledger;
mod passt;
mod request;
mod seccomp;
mod server;
mod write;

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{MetricsPlace, NetnsError, NetnsSpec};

pub use attend::attend;
pub use channel::{Channel, FILES};
pub use client::{
    HelperError, connect_helper, helper_is_gone, make_devices_here, start_helper, stop_helper,
};
pub use confine::{RightsError, confine, forgo_rest, raise_limits, wait_for_threads};
pub(crate) use interface::here;
pub use interface::{Change, ChangeError};
pub(crate) use ledger::{Ledger, SocketFile};
pub use passt::{Passt, PasstError};
pub use request::Request;
pub use seccomp::{Threads, capture_thread, filter_thread};
pub(crate) use seccomp::{port_thread, worker_thread};
pub use server::{ENTER, Serve, serve};
pub use write::write_file;

/// Something that takes rights, as data. It is performed by the helper, or by the caller where
/// there is no helper, and is to be trusted by neither.
pub(crate) trait Privileged: Serialize + DeserializeOwned + Into<Request> + Send {
    /// Answer, beside the files.
    type Answer: Serialize + DeserializeOwned + Send;
    /// Reason why it is refused.
    type Error: Error + Send + Sync + 'static;

    /// It is about interfaces, so that it matters in which network namespace it is performed.
    const OF_NETWORK: bool = true;

    /// Thing that it is about, if that must be in the configuration of the one who asks. A helper
    /// refuses what is not. `place` is the network namespace that was asked for.
    fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
        let _ = place;
        None
    }

    /// Does it, on a thread in the network namespace that was asked for. `files` came with the
    /// request.
    ///
    /// # Errors
    /// If a field is not one that the operation may have, or the system refuses.
    fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger)
    -> Performed<Self::Answer, Self::Error>;
}

/// Something that only a configuration opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A socket of somebody else.
    Socket(PathBuf),
    /// A file that is written.
    File(PathBuf),
    /// An interface of the system, in a network namespace (ours if `None`).
    Interface(Option<NetnsSpec>, String),
    /// The place where metrics are to be had: of `[engine]`, not of a port.
    Metrics(MetricsPlace),
}

impl Subject {
    /// Kind and name, as a configuration allows it: `socket:/run/x`, `interface:eth0`,
    /// `interface:NAMESPACE/eth0`. `None`: it is no text, or not for ports.
    pub fn words(&self) -> Option<String> {
        Some(match self {
            Subject::Socket(path) => format!("socket:{}", path.to_str()?),
            Subject::File(path) => format!("file:{}", path.to_str()?),
            Subject::Interface(None, name) => format!("interface:{name}"),
            Subject::Interface(Some(NetnsSpec::Name(netns)), name) => {
                format!("interface:{netns}/{name}")
            }
            Subject::Interface(Some(NetnsSpec::Path(path)), name) => {
                format!("interface:{}/{name}", path.to_str()?)
            }
            Subject::Interface(Some(NetnsSpec::Pid(pid)), name) => {
                format!("interface:/proc/{pid}/ns/net/{name}")
            }
            Subject::Metrics(_) => return None,
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Socket(path) => write!(f, "the socket {}", path.display()),
            Subject::File(path) => write!(f, "the file {}", path.display()),
            Subject::Interface(None, name) => write!(f, "the interface {name}"),
            Subject::Interface(Some(netns), name) => {
                write!(f, "the interface {name} in the network namespace {netns}")
            }
            Subject::Metrics(MetricsPlace::Tcp(address)) => {
                write!(f, "the address {address} for metrics")
            }
            Subject::Metrics(MetricsPlace::Unix(path)) => {
                write!(f, "the socket {} for metrics", path.display())
            }
        }
    }
}

/// Result of an operation, with the files that go to the one who asked.
pub(crate) type Performed<A, E> = Result<(A, Vec<OwnedFd>), E>;

/// Why an operation was not performed.
#[derive(Debug, thiserror::Error)]
pub enum AskError<E: Error + 'static> {
    /// The operation failed in this process.
    #[error(transparent)]
    Own(E),
    /// The namespace that it was to be performed in.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The helper refused, for this reason.
    #[error("{text}")]
    Refused {
        /// Sentence of the one who refused.
        text: String,
        /// The system's error number, if there was one.
        errno: Option<i32>,
    },
    /// The helper is not there any more.
    #[error("the privileged helper is gone; restart the daemon")]
    Gone,
    /// The helper could not be asked.
    #[error("cannot ask the privileged helper")]
    Channel(#[source] io::Error),
}

/// The ledger of a process without a helper.
static OWN: OnceLock<Ledger> = OnceLock::new();

/// Has an operation performed in a network namespace (ours if `None`), with `files` handed over.
/// Waits for it.
///
/// # Errors
/// [`AskError`].
pub(crate) fn ask<P: Privileged>(
    place: Option<&NetnsSpec>,
    operation: P,
    files: &[BorrowedFd<'_>],
) -> Performed<P::Answer, AskError<P::Error>> {
    if let Some(helper) = client::helper() {
        return helper.ask(place, operation, files);
    }
    let files: io::Result<Vec<OwnedFd>> = files.iter().map(|f| f.try_clone_to_owned()).collect();
    let files = files.map_err(AskError::Channel)?;
    let ledger = OWN.get_or_init(Ledger::default);
    let perform = || operation.perform(files, ledger);
    match place {
        None => perform(),
        Some(place) => place.open()?.run(perform)?,
    }
    .map_err(AskError::Own)
}

/// Has an operation performed whose result nobody needs. Waits for nothing.
pub(crate) fn tell<P: Privileged>(operation: P) {
    match client::helper() {
        Some(helper) => helper.tell(operation),
        None => drop(operation.perform(Vec::new(), OWN.get_or_init(Ledger::default))),
    }
}
