//! Network namespaces: opening, making and entering them.
//!
//! A namespace belongs to a *thread*, so that code which must run in another one gets a thread of
//! its own ([`Netns::run`]) and no other thread ever notices. Sockets and TAP queues stay in the
//! namespace where they were opened, wherever they are used afterwards.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fstat, fstatfs};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};

/// A network namespace in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NetnsSpec {
    /// The name that `ip netns add` gave it.
    Name(String),
    /// A file that stands for it.
    Path(PathBuf),
    /// That of a process, such as a container's.
    Pid(u32),
}

impl NetnsSpec {
    /// Opens it.
    ///
    /// # Errors
    /// [`NetnsError`] if there is none, or it may not be opened.
    pub fn open(&self) -> Result<Netns, NetnsError> {
        match self {
            NetnsSpec::Name(name) => Netns::named(name),
            NetnsSpec::Path(path) => Netns::checked(path),
            NetnsSpec::Pid(pid) => {
                let opened = Netns::checked(Path::new(&format!("/proc/{pid}/ns/net")));
                opened.map_err(|error| match error {
                    NetnsError::Open { source, .. }
                        if source.kind() == io::ErrorKind::NotFound =>
                    {
                        NetnsError::NoProcess(*pid)
                    }
                    NetnsError::Open { source, .. } => NetnsError::Process { pid: *pid, source },
                    error => error,
                })
            }
        }
    }
}

impl fmt::Display for NetnsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetnsSpec::Name(name) => f.write_str(name),
            NetnsSpec::Path(path) => path.display().fmt(f),
            NetnsSpec::Pid(pid) => write!(f, "process {pid}"),
        }
    }
}

/// A network namespace, held open: it exists at least as long as this value. Clones share the
/// handle.
#[derive(Clone, Debug)]
pub struct Netns {
    fd: Arc<OwnedFd>,
}

/// Why a namespace could not be had.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The name contains a slash, is empty, or is `.` or `..`.
    #[error("'{0}' cannot be the name of a network namespace")]
    BadName(String),
    /// Nobody made a namespace of this name.
    #[error("there is no network namespace '{0}'; make it with `ip netns add {0}`")]
    NotFound(String),
    /// The file that stands for the namespace cannot be opened.
    #[error("cannot open the network namespace {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Nobody has this process id here.
    #[error("there is no process {0}, whose network namespace is meant")]
    NoProcess(u32),
    /// The process is another user's.
    #[error("cannot open the network namespace of process {pid}")]
    Process {
        /// Number of the process.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{0} is no network namespace")]
    NotOne(PathBuf),
    /// The system refuses to make one.
    #[error("cannot make a network namespace (it takes CAP_SYS_ADMIN)")]
    Create(#[source] io::Error),
    /// The system refuses to enter one.
    #[error(
        "cannot enter the network namespace: it takes CAP_SYS_ADMIN, or to be the user whose \
         container it is"
    )]
    Enter(#[source] io::Error),
}

/// Where `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";

/// `NSFS_MAGIC` of `linux/magic.h`.
const NSFS: u64 = 0x6e73_6673;

impl Netns {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Open`] if `/proc` is not mounted.
    pub fn current() -> Result<Netns, NetnsError> {
        Netns::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// The namespace that `ip netns add NAME` made.
    ///
    /// # Errors
    /// [`NetnsError`] if there is none of that name or it cannot be opened.
    pub fn named(name: &str) -> Result<Netns, NetnsError> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(NetnsError::BadName(name.to_owned()));
        }
        match Netns::open(&Path::new(NAMED).join(name)) {
            Err(NetnsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(NetnsError::NotFound(name.to_owned()))
            }
            other => other,
        }
    }

    /// The namespace behind a file such as `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn open(path: &Path) -> Result<Netns, NetnsError> {
        match File::open(path) {
            Ok(file) => Ok(Netns {
                fd: Arc::new(file.into()),
            }),
            Err(source) => Err(NetnsError::Open {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// As [`open`](Netns::open), for a path that somebody else gives: nothing but a namespace is
    /// opened.
    fn checked(path: &Path) -> Result<Netns, NetnsError> {
        let failed = |source: io::Error| NetnsError::Open {
            path: path.to_owned(),
            source,
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let system = fstatfs(&file).map_err(|e| failed(e.into()))?;
        if u64::try_from(system.f_type) != Ok(NSFS) {
            return Err(NetnsError::NotOne(path.to_owned()));
        }
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::open(same).map_err(failed)?;
        Ok(Netns {
            fd: Arc::new(file.into()),
        })
    }

    /// Number of the namespace, as `readlink /proc/PID/ns/net` shows it.
    ///
    /// # Errors
    /// None that is known.
    pub fn id(&self) -> io::Result<u64> {
        Ok(fstat(&self.fd)?.st_ino)
    }

    /// The user namespace that it belongs to.
    #[allow(unsafe_code, reason = "an ioctl whose result is a file")]
    pub(crate) fn owner(&self) -> io::Result<OwnedFd> {
        /// `NS_GET_USERNS` of `linux/nsfs.h`.
        const GET_USERNS: libc::Ioctl = 0xb701;
        // SAFETY: takes no argument.
        let fd = unsafe { libc::ioctl(self.fd.as_raw_fd(), GET_USERNS) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new file, which nobody else has.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A fresh, empty namespace without a name: gone when the last handle, thread, socket and
    /// queue in it is. Its loopback is down.
    ///
    /// # Errors
    /// [`NetnsError::Create`] without the privilege.
    pub fn anonymous() -> Result<Netns, NetnsError> {
        on_thread(|| {
            unshare_network().map_err(NetnsError::Create)?;
            Netns::current()
        })
        .map_err(NetnsError::Create)?
    }

    /// Runs `f` on a thread in this namespace and waits for it. A panic of `f` goes on in the
    /// caller.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] if no thread can be made or it may not enter; `f` has not run then.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        on_thread(|| {
            self.enter()?;
            Ok(f())
        })
        .map_err(NetnsError::Enter)?
    }

    /// Moves the calling thread into this namespace, for good.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] without the privilege.
    pub fn enter(&self) -> Result<(), NetnsError> {
        rustix::thread::move_into_link_name_space(
            self.fd.as_fd(),
            Some(LinkNameSpaceType::Network),
        )
        .map_err(|e| NetnsError::Enter(e.into()))
    }
}

impl From<OwnedFd> for Netns {
    /// A file that stands for a namespace; if it is none, it cannot be entered.
    fn from(file: OwnedFd) -> Netns {
        Netns { fd: Arc::new(file) }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives the calling thread a network namespace of its own.
#[allow(unsafe_code, reason = "unshare is an unsafe call in rustix")]
fn unshare_network() -> io::Result<()> {
    // SAFETY: what makes `unshare` unsafe is CLONE_FILES, by which threads would lose sight of
    // each other's file descriptors; only the network namespace is asked for.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Runs `f` on a thread of its own, for what must not change the caller's thread.
fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, f)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
