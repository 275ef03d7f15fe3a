//! Hosts `a`, `b`, … and a place for the switch between them: a network namespace each, with a
//! name that no other run has, and gone with the value.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use softnet_io::{InterfaceAddress, LinkError, Links};

use crate::cleanup::{self, Guard, Leftover};
use crate::error::TestbedError;
use crate::files;
use crate::in_process::InProcess;
use crate::place::Place;
use crate::process::{self, Process};

/// Host b's address.
pub const ADDRESS_B: Ipv4Addr = address(1);

/// Hosts of one /24.
const HOSTS: usize = 250;

/// The switch's end of the veth whose other end is the host's `interface`.
pub fn bridge_port(interface: &str) -> String {
    format!("p{interface}")
}

/// The address of the host with this index.
const fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, (index / HOSTS) as u8, (index % HOSTS + 1) as u8)
}

/// Distinguishes the topologies and directories of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other run has. One that was killed may have left its things behind, and have had
/// the number of this process.
fn own_name() -> String {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("snb{}-{number}", std::process::id());
        if !temporary(&name).exists() && !has_namespaces(&name) {
            return name;
        }
    }
}

/// There are namespaces of a topology with this name.
fn has_namespaces(topology: &str) -> bool {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten();
    names.flatten().any(|entry| {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(topology));
        rest.is_some_and(|rest| rest.starts_with('-'))
    })
}

/// The path of a temporary directory of the place that peers come from.
fn temporary(name: &str) -> PathBuf {
    Place::of_peers().outside(&std::env::temp_dir()).join(name)
}

/// A network namespace that `ip netns` knows by name, with loopback up.
#[derive(Debug)]
pub struct NamedNetns {
    name: String,
    handle: softnet_io::Netns,
    _guard: Guard,
}

impl NamedNetns {
    fn add(name: String) -> Result<NamedNetns, TestbedError> {
        if process::find("ip").is_none() {
            return Err(TestbedError::Unavailable(
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
                    Err(TestbedError::Unavailable(format!(
                        "no network namespace can be made: {why}"
                    )))
                }
                Err(e) => Err(TestbedError::io("starting `ip`", e)),
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

    /// The name, as `ip` has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace itself.
    pub fn handle(&self) -> &softnet_io::Netns {
        &self.handle
    }

    /// Runs `ip` with these arguments, separated by blanks, in here.
    pub fn ip(&self, arguments: &str) -> Result<(), TestbedError> {
        let mut command = Command::new("ip");
        command
            .args(["-n", &self.name])
            .args(arguments.split_whitespace());
        process::output(&mut command).map(drop)
    }

    /// Runs `tc` with these arguments, separated by blanks, in here.
    pub fn tc(&self, arguments: &str) -> Result<(), TestbedError> {
        let mut command = Command::new("tc");
        command
            .args(["-n", &self.name])
            .args(arguments.split_whitespace());
        process::output(&mut command).map(drop)
    }

    /// A command that will run `program` in here.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name])
            .arg(program.as_ref());
        command
    }

    /// The same for a program of `place`.
    pub fn command_in(&self, place: &Place, program: &Path) -> Command {
        let words = place.words(program);
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        command
    }

    /// Runs `f` on a thread in here.
    pub fn run<T: Send>(
        &self,
        f: impl FnOnce() -> Result<T, TestbedError> + Send,
    ) -> Result<T, TestbedError> {
        self.handle.run(f)?
    }
}

/// A host: a network namespace, and the interface that it is to have there.
#[derive(Debug)]
pub struct Host {
    /// The host's namespace.
    pub netns: NamedNetns,
    /// `a0` of host a, and so on.
    pub interface: String,
    /// The interface's address.
    pub address: Ipv4Addr,
    /// Bits of the prefix of the hosts' network.
    bits: u8,
}

impl Host {
    /// Gives the interface its address and brings it up.
    fn configure(&self) -> Result<(), TestbedError> {
        let failed = |error: LinkError| {
            let chain = std::error::Error::source(&error);
            let why = chain.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            TestbedError::Measure(format!("{}: {why}", self.interface))
        };
        let address = InterfaceAddress::new(self.address.into(), self.bits);
        let address = address.map_err(|error| TestbedError::Measure(error.to_string()))?;
        let mut links = Links::open().map_err(failed)?;
        let index = links.index(&self.interface).map_err(failed)?;
        links.add_address(index, address).map_err(failed)?;
        links.set_up(index, true).map_err(failed)
    }

    /// Takes the interface up or down.
    ///
    /// # Errors
    /// [`TestbedError::Measure`] if the kernel refuses.
    pub fn set_up(&self, up: bool) -> Result<(), TestbedError> {
        let state = if up { "up" } else { "down" };
        let failed = |error: LinkError| {
            TestbedError::Measure(format!("taking {} {state}: {error}", self.interface))
        };
        self.netns.run(|| {
            let mut links = Links::open().map_err(failed)?;
            let index = links.index(&self.interface).map_err(failed)?;
            links.set_up(index, up).map_err(failed)
        })
    }

    /// The address with the prefix length of the hosts' network.
    pub fn prefix(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }
}

/// Hosts and the switch between them. Fields are dropped in this order: daemons before the
/// namespaces they run in.
#[derive(Debug)]
pub struct Topology {
    /// The switch, where it is part of this program.
    pub engine: Option<Box<dyn InProcess>>,
    /// The daemons that run for the topology, in the order in which they are to be stopped.
    pub daemons: Vec<Process>,
    /// Where daemons keep their files.
    pub directory: Directory,
    /// Host a first.
    pub hosts: Vec<Host>,
    /// Where the switch runs.
    pub switch: NamedNetns,
}

impl Topology {
    /// Two hosts: three empty namespaces and an empty directory.
    pub fn new() -> Result<Topology, TestbedError> {
        Topology::of(2)
    }

    /// As many hosts as asked for, each an empty namespace; one more for the switch; an empty
    /// directory.
    pub fn of(hosts: usize) -> Result<Topology, TestbedError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TestbedError::Unavailable(
                "making network namespaces takes root".into(),
            ));
        }
        let prefix = own_name();
        let host = |index: usize| {
            let name = match u8::try_from(index) {
                Ok(letter @ 0..26) => char::from(b'a' + letter).to_string(),
                _ => format!("h{index}x"),
            };
            Ok::<_, TestbedError>(Host {
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
    pub fn a(&self) -> &NamedNetns {
        &self.hosts[0].netns
    }

    /// The second host.
    pub fn b(&self) -> &NamedNetns {
        &self.hosts[1].netns
    }

    /// Gives the hosts' interfaces their addresses and brings them up.
    pub fn configure_hosts(&self) -> Result<(), TestbedError> {
        for host in &self.hosts {
            host.netns.run(|| host.configure())?;
        }
        Ok(())
    }

    /// An error if one of the daemons has ended.
    pub fn check_running(&self) -> Result<(), TestbedError> {
        self.daemons.iter().try_for_each(Process::check_running)
    }
}

/// A directory under the temporary one of the place that peers come from, gone with the value.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _guard: Guard,
}

impl Directory {
    /// An empty one with a name that no other run has.
    pub fn private() -> Result<Directory, TestbedError> {
        Directory::new(&own_name())
    }

    fn new(name: &str) -> Result<Directory, TestbedError> {
        let path = temporary(name);
        let ((), guard) = cleanup::make(|| {
            std::fs::create_dir(&path)
                .map_err(|e| TestbedError::io(format!("making {}", path.display()), e))?;
            Ok::<_, TestbedError>(((), Leftover::Directory(path.clone())))
        })?;
        Ok(Directory {
            path,
            _guard: guard,
        })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of this name there; its path.
    ///
    /// # Errors
    /// [`TestbedError::Io`] if it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, TestbedError> {
        let path = self.path.join(name);
        files::write(&path, text)?;
        Ok(path)
    }
}
