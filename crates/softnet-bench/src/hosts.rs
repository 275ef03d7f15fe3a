//! Hosts `a`, `b`, … and a place for the switch between them: a network namespace each, with a
//! name that no other run has, and gone with the value.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use softnet_io::{InterfaceAddress, LinkError, Links};

use crate::cleanup::{self, Guard, Leftover};
use crate::error::BenchError;
use crate::in_process::InProcess;
use crate::peers::place::Place;
use crate::process::{self, Process};

/// Host b's address.
pub(crate) const ADDRESS_B: Ipv4Addr = address(1);

/// Hosts of one /24.
const HOSTS: usize = 250;

/// The address of the host with this index.
const fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, (index / HOSTS) as u8, (index % HOSTS + 1) as u8)
}

/// Distinguishes the topologies and directories of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other run has.
fn own_name() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("snb{}-{number}", std::process::id())
}

/// A network namespace that `ip netns` knows by name, with loopback up.
#[derive(Debug)]
pub(crate) struct NamedNetns {
    name: String,
    handle: softnet_io::Netns,
    _guard: Guard,
}

impl NamedNetns {
    fn add(name: String) -> Result<NamedNetns, BenchError> {
        if process::find("ip").is_none() {
            return Err(BenchError::Unavailable(
                "`ip` is not installed (package iproute2)".into(),
            ));
        }
        let ((), guard) = cleanup::make(|| {
            // Not through `process::output`, which would wait for the list that is held here.
            let made = Command::new("ip").args(["netns", "add", &name]).output();
            match made {
                Ok(made) if made.status.success() => Ok(((), Leftover::Netns(name.clone()))),
                Ok(made) => {
                    let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                    Err(BenchError::Unavailable(format!(
                        "no network namespace can be made: {why}"
                    )))
                }
                Err(e) => Err(BenchError::io("starting `ip`", e)),
            }
        })?;
        let handle = softnet_io::Netns::named(&name)?;
        let netns = NamedNetns {
            name,
            handle,
            _guard: guard,
        };
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handle(&self) -> &softnet_io::Netns {
        &self.handle
    }

    /// Runs `ip` with these arguments, separated by blanks, in here.
    pub(crate) fn ip(&self, arguments: &str) -> Result<(), BenchError> {
        let mut command = Command::new("ip");
        command
            .args(["-n", &self.name])
            .args(arguments.split_whitespace());
        process::output(&mut command).map(drop)
    }

    /// Runs `tc` with these arguments, separated by blanks, in here.
    pub(crate) fn tc(&self, arguments: &str) -> Result<(), BenchError> {
        let mut command = Command::new("tc");
        command
            .args(["-n", &self.name])
            .args(arguments.split_whitespace());
        process::output(&mut command).map(drop)
    }

    /// A command that will run `program` in here.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name])
            .arg(program.as_ref());
        command
    }

    /// The same for a program of `place`.
    pub(crate) fn command_in(&self, place: &Place, program: &Path) -> Command {
        let words = place.words(program);
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        command
    }

    /// Runs `f` on a thread in here.
    pub(crate) fn run<T: Send>(
        &self,
        f: impl FnOnce() -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        self.handle.run(f)?
    }
}

/// A host: a network namespace, and the interface that it is to have there.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) netns: NamedNetns,
    /// `a0` of host a, and so on.
    pub(crate) interface: String,
    pub(crate) address: Ipv4Addr,
    /// Bits of the prefix of the hosts' network.
    bits: u8,
}

impl Host {
    /// Gives the interface its address and brings it up.
    fn configure(&self) -> Result<(), BenchError> {
        let failed = |error: LinkError| {
            let chain = std::error::Error::source(&error);
            let why = chain.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            BenchError::Measure(format!("{}: {why}", self.interface))
        };
        let address = InterfaceAddress::new(self.address.into(), self.bits);
        let address = address.map_err(|error| BenchError::Measure(error.to_string()))?;
        let mut links = Links::open().map_err(failed)?;
        let index = links.index(&self.interface).map_err(failed)?;
        links.add_address(index, address).map_err(failed)?;
        links.set_up(index, true).map_err(failed)
    }

    /// Takes the interface up or down.
    pub(crate) fn set_up(&self, up: bool) -> Result<(), BenchError> {
        let state = if up { "up" } else { "down" };
        let failed = |error: LinkError| {
            BenchError::Measure(format!("taking {} {state}: {error}", self.interface))
        };
        self.netns.run(|| {
            let mut links = Links::open().map_err(failed)?;
            let index = links.index(&self.interface).map_err(failed)?;
            links.set_up(index, up).map_err(failed)
        })
    }

    /// The address with the prefix length of the hosts' network.
    pub(crate) fn prefix(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }
}

/// Hosts and the switch between them. Fields are dropped in this order: daemons before the
/// namespaces they run in.
#[derive(Debug)]
pub(crate) struct Topology {
    /// The switch, where it is part of this program.
    pub(crate) engine: Option<Box<dyn InProcess>>,
    /// The daemons that run for the topology, in the order in which they are to be stopped.
    pub(crate) daemons: Vec<Process>,
    /// Where daemons keep their files.
    pub(crate) directory: Directory,
    pub(crate) hosts: Vec<Host>,
    /// Where the switch runs.
    pub(crate) switch: NamedNetns,
}

impl Topology {
    /// Two hosts: three empty namespaces and an empty directory.
    pub(crate) fn new() -> Result<Topology, BenchError> {
        Topology::of(2)
    }

    /// As many hosts as asked for, each an empty namespace; one more for the switch; an empty
    /// directory.
    pub(crate) fn of(hosts: usize) -> Result<Topology, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Err(BenchError::Unavailable(
                "making network namespaces takes root".into(),
            ));
        }
        let prefix = own_name();
        let host = |index: usize| {
            let name = match u8::try_from(index) {
                Ok(letter @ 0..26) => char::from(b'a' + letter).to_string(),
                _ => format!("h{index}x"),
            };
            Ok::<_, BenchError>(Host {
                netns: NamedNetns::add(format!("{prefix}-{name}"))?,
                interface: format!("{name}0"),
                address: address(index),
                bits: if hosts > HOSTS { 16 } else { 24 },
            })
        };
        Ok(Topology {
            engine: None,
            daemons: Vec::new(),
            directory: Directory::new(&prefix)?,
            hosts: (0..hosts).map(host).collect::<Result<_, _>>()?,
            switch: NamedNetns::add(format!("{prefix}-sw"))?,
        })
    }

    /// The first host.
    pub(crate) fn a(&self) -> &NamedNetns {
        &self.hosts[0].netns
    }

    /// The second host.
    pub(crate) fn b(&self) -> &NamedNetns {
        &self.hosts[1].netns
    }

    /// Gives the hosts' interfaces their addresses and brings them up.
    pub(crate) fn configure_hosts(&self) -> Result<(), BenchError> {
        for host in &self.hosts {
            host.netns.run(|| host.configure())?;
        }
        Ok(())
    }

    /// An error if one of the daemons has ended.
    pub(crate) fn check_running(&self) -> Result<(), BenchError> {
        self.daemons.iter().try_for_each(Process::check_running)
    }
}

/// A directory under the temporary one of the place that peers come from, gone with the value.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _guard: Guard,
}

impl Directory {
    /// An empty one with a name that no other run has.
    pub(crate) fn private() -> Result<Directory, BenchError> {
        Directory::new(&own_name())
    }

    fn new(name: &str) -> Result<Directory, BenchError> {
        let path = Place::of_peers().outside(&std::env::temp_dir()).join(name);
        let ((), guard) = cleanup::make(|| {
            std::fs::create_dir(&path)
                .map_err(|e| BenchError::io(format!("making {}", path.display()), e))?;
            Ok::<_, BenchError>(((), Leftover::Directory(path.clone())))
        })?;
        Ok(Directory {
            path,
            _guard: guard,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
