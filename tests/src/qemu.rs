//! Guests: Debian's kernel and a busybox, booted by QEMU with emulation, whose network devices are
//! ports of Softnet's. `tests/guest/image.sh` makes what they boot.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::skip;

/// Longer than a boot and any command takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The other end of a guest's network device: a port of this driver.
#[derive(Clone, Copy, Debug)]
pub enum Netdev<'a> {
    /// `vhost_user`.
    VhostUser {
        /// The socket where its front end meets the port.
        socket: &'a Path,
        /// True if the socket is QEMU's.
        server: bool,
    },
    /// `stream`: the port's socket.
    Stream(&'a Path),
    /// `dgram`.
    Dgram {
        /// The port's socket.
        socket: &'a Path,
        /// QEMU's.
        own: &'a Path,
    },
}

impl Netdev<'_> {
    /// QEMU's options for it, with this name. `new`: since version 10.
    fn options(self, name: &str, queues: usize, new: bool) -> Vec<String> {
        match self {
            Netdev::VhostUser { socket, server } => {
                let side = match (server, new) {
                    (true, _) => "server=on",
                    (false, true) => "reconnect-ms=1000",
                    (false, false) => "reconnect=1",
                };
                let socket = socket.display();
                vec![
                    "-chardev".into(),
                    format!("socket,id=port{name},path={socket},{side}"),
                    "-netdev".into(),
                    format!("vhost-user,id={name},chardev=port{name},queues={queues}"),
                ]
            }
            Netdev::Stream(socket) => {
                let address = format!("addr.type=unix,addr.path={}", socket.display());
                vec![
                    "-netdev".into(),
                    format!("stream,id={name},server=off,{address}"),
                ]
            }
            Netdev::Dgram { socket, own } => {
                let [socket, own] = [socket, own].map(Path::display);
                let remote = format!("remote.type=unix,remote.path={socket}");
                let local = format!("local.type=unix,local.path={own}");
                vec![
                    "-netdev".into(),
                    format!("dgram,id={name},{local},{remote}"),
                ]
            }
        }
    }
}

/// The settings of a guest.
#[derive(Clone, Debug)]
pub struct GuestConfig<'a> {
    /// Network devices of the guest: `eth0` and so on.
    pub netdevs: &'a [Netdev<'a>],
    /// An archive (cpio, gzip) of more files in its root folder.
    pub files: Option<&'a Path>,
    /// The IP address of `eth0` with the length of the prefix. Its last byte is that of the
    /// Ethernet address, too.
    pub address: &'a str,
    /// Queue pairs of a device.
    pub queues: usize,
    /// More properties of a device, each with a comma before it.
    pub device: &'a str,
}

/// A running guest with two CPUs. Killed when dropped, and when the thread that started it ends.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    output: ChildStdout,
    /// Output that was not read yet.
    pending: Vec<u8>,
    /// Where its kernel writes.
    log: PathBuf,
}

/// The folder with the kernel and its root folder. `None`, and the reason printed, where there is
/// none, or no QEMU.
pub fn image() -> Option<PathBuf> {
    find_image().map_err(skip).ok()
}

/// The same.
///
/// # Errors
/// The reason.
pub fn find_image() -> Result<PathBuf, &'static str> {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guest");
    if version().is_none() {
        return Err("qemu-system-x86_64 is not installed");
    }
    if !image.join("initrd").exists() {
        return Err("there is no guest to boot: run tests/guest/image.sh target/guest");
    }
    Ok(image)
}

/// The first number of QEMU's version.
fn version() -> Option<u32> {
    let output = Command::new("qemu-system-x86_64").arg("--version").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let version = text.strip_prefix("QEMU emulator version ")?;
    version.split('.').next()?.parse().ok()
}

impl Guest {
    /// Starts one, which is to be waited for. What its kernel says is written to `log`.
    pub fn start(image: &Path, log: PathBuf, config: &GuestConfig<'_>) -> Guest {
        let GuestConfig {
            address, queues, ..
        } = *config;
        let number: u8 = address
            .split(['.', '/'])
            .nth(3)
            .and_then(|number| number.parse().ok())
            .expect("an IPv4 address");
        let new = version().is_some_and(|version| version >= 10);
        let mut devices = Vec::new();
        for (place, netdev) in config.netdevs.iter().enumerate() {
            let name = format!("net{place}");
            devices.extend(netdev.options(&name, queues, new));
            let mut device = format!(
                "virtio-net-pci,netdev={name},mac=52:54:00:00:{place:02x}:{number:02x},mq=on,\
                 romfile={}",
                config.device
            );
            if !new && matches!(netdev, Netdev::VhostUser { .. }) {
                // QEMU 7.2 crashes with vhost-user and MSI-X where the CPU is emulated.
                device += ",vectors=0";
            }
            devices.extend(["-device".into(), device]);
        }
        let mut initrd = image.join("initrd");
        if let Some(files) = config.files {
            // The kernel unpacks archives one after the other.
            let both = [initrd, files.to_owned()].map(|file| std::fs::read(file).expect("a file"));
            initrd = log.with_extension("initrd");
            std::fs::write(&initrd, both.concat()).expect("a file");
        }
        let qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-machine", "q35,memory-backend=mem"])
            .args(["-accel", "tcg,tb-size=64", "-cpu", "max", "-smp", "2"])
            .args(["-m", "192M", "-object"])
            .arg("memory-backend-memfd,id=mem,size=192M,share=on")
            .arg("-kernel")
            .arg(image.join("vmlinuz"))
            .arg("-initrd")
            .arg(initrd)
            // The test of the timer fails where the machine has more to do.
            .arg("-append")
            .arg(format!("console=ttyS0 no_timer_check address={address}"))
            .arg("-serial")
            .arg(format!("file:{}", log.display()))
            .args(["-serial", "stdio"])
            .args(devices)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log.with_extension("stderr")).expect("a file"))
            .spawn();
        let mut qemu = qemu.expect("QEMU");
        let output = qemu.stdout.take().expect("a pipe");
        Guest {
            qemu,
            output,
            pending: Vec::new(),
            log,
        }
    }

    /// Waits until it has booted and has its address.
    pub fn await_ready(&mut self) {
        while self.line("its boot") != "== ready" {}
    }

    /// Runs a line of shell, and returns its status and what it wrote.
    pub fn run(&mut self, command: &str) -> (i32, String) {
        self.tell(command);
        self.answer(command)
    }

    /// Runs a line of shell that must succeed, and returns what it wrote.
    pub fn ok(&mut self, command: &str) -> String {
        let (status, output) = self.run(command);
        assert_eq!(status, 0, "{command}: {output}");
        output
    }

    /// Begins a line of shell; [`Guest::answer`] ends it.
    pub fn tell(&mut self, command: &str) {
        let stdin = self.qemu.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{command}").expect("QEMU takes it");
    }

    /// Exit status and output of the line of shell that was begun.
    pub fn answer(&mut self, command: &str) -> (i32, String) {
        let mut output = String::new();
        loop {
            let line = self.line(command);
            match line.strip_prefix("== ") {
                Some(status) => {
                    let status = status.parse();
                    return (status.expect("a status"), output.trim_end().to_owned());
                }
                None => output += &(line + "\n"),
            }
        }
    }

    /// Reboots it, and returns when it has its address again.
    pub fn reboot(&mut self) {
        self.tell("reboot -f");
        self.await_ready();
    }

    /// Ends it as if the machine had lost power.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.qemu), Signal::KILL);
        let _ = self.qemu.wait();
    }

    /// The next line that it writes.
    fn line(&mut self, what: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return String::from_utf8_lossy(&line).trim().to_owned();
            }
            let left = PATIENCE.checked_sub(start.elapsed());
            let mut fds = [PollFd::new(&self.output, PollFlags::IN)];
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let ready = limit.map_or(Ok(0), |limit| poll(&mut fds, Some(&limit)));
            let mut buffer = [0; 4096];
            match ready {
                Ok(0) => panic!("the guest does not answer: {what}\n{}", self.log()),
                Ok(_) => match self.output.read(&mut buffer).expect("a pipe") {
                    0 => panic!("QEMU is gone: {what}\n{}", self.log()),
                    n => self.pending.extend(&buffer[..n]),
                },
                Err(_) => {}
            }
        }
    }

    /// The end of what QEMU and its kernel wrote.
    fn log(&self) -> String {
        let files = [self.log.with_extension("stderr"), self.log.clone()];
        let last = files.map(|file| {
            let text = std::fs::read(file).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let skipped = text.lines().count().saturating_sub(20);
            text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
        });
        last.join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}
