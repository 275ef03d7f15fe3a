//! `--script`: a script of tc, ip and bridge is run, unmodified, against devices that nothing is
//! behind; the tree that it leaves at one of them is what is simulated.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnet_engine::{PortSpec, Settings};
use softnet_io::{DeviceSpec, NullSpec, Scheduling};
use softnet_rtnl::Rtnl;
use softnet_rtnl::server::{self, Listen, Server};
use softnet_tc::DefaultQdisc;

use super::policy::{Policy, must_be_file};
use super::processes::{self, Ended};
use super::refused::{Noting, Refused};
use crate::failure::{Exit, Failure};
use crate::report::note;
use crate::setup;

/// Time that a script has.
const PATIENCE: Duration = Duration::from_secs(60);
/// Another time in milliseconds, for tests.
const PATIENCE_VARIABLE: &str = "SOFTNET_SCRIPT_PATIENCE_MS";

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// A folder of its own that only its user may enter.
    fn new() -> io::Result<Scratch> {
        const TRIES: u64 = 16;
        let random = RandomState::new();
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for n in 0..TRIES {
            let name = format!("softnet-sim-{:016x}", random.hash_one(n));
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The policy that a script makes at the device `dev`. Chance in it follows from `seed`.
pub(super) fn policy(script: &Path, dev: &str, seed: u64) -> Result<Policy, Failure> {
    let cannot = |what: &str, error: &dyn std::error::Error| {
        Failure::because(Exit::Failure, format!("cannot {what}"), error)
    };
    if let Some(wrong) = Settings::wrong_name(dev) {
        return Err(Failure::new(
            Exit::Config,
            format!("--dev: {dev:?} {wrong}"),
        ));
    }
    let unread =
        |error: io::Error| Failure::because(Exit::Config, script.display().to_string(), &error);
    must_be_file(script).map_err(unread)?;
    let interpreter = interpreter(script).map_err(unread)?;
    let scratch = Scratch::new().map_err(|error| cannot("make a folder", &error))?;
    let socket = scratch.0.join("socket");
    let (scheduling, _) = Scheduling::best(Some(Scheduling::Normal));
    let engine = setup::start(1, &[], scheduling, 1024, Default::default())
        .map_err(|error| cannot("start the devices", &error))?;
    engine.choose_seeds_from(seed);
    let mut port = PortSpec {
        settings: Settings::new(dev),
        ..PortSpec::default()
    };
    port.options.device = DeviceSpec::Null(NullSpec);
    let index = engine
        .add_port(port)
        .map_err(|error| cannot("make the device", &error))?;
    let engine = Arc::new(Mutex::new(engine));
    let listen = Listen {
        path: socket.clone(),
        mode: 0o600,
        group: None,
    };
    let server = Server::bind(&server::Config {
        listen,
        monitor: None,
        clients: server::Config::CLIENTS,
    });
    let server = server.map_err(|error| cannot("listen for the script", &error))?;
    let refused = Refused::default();
    let service = Noting {
        service: Rtnl::new(engine.clone()),
        refused: refused.clone(),
    };
    let server = server.start(service);
    let server = server.map_err(|error| cannot("listen for the script", &error))?;
    let run = run(script, &interpreter, &socket, dev);
    server.stop().map_err(|error| cannot("end", &error))?;
    for line in refused.lines() {
        note(format_args!("{}: {line}", script.display()));
    }
    run?;
    let engine = engine
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let gone = |error: softnet_engine::EngineError| {
        let text = format!("the script leaves no device {dev:?}");
        Failure::because(Exit::Config, text, &error)
    };
    let link = engine.link(index).map_err(gone)?;
    let tree = engine.read_tree(index, |tree, _| tree.spec().clone());
    let tree = tree.map_err(gone)?;
    if tree.is_empty() {
        let script = script.display();
        note(format_args!(
            "{script}: warning: it leaves {dev:?} without a qdisc; the default one is simulated"
        ));
    }
    Ok(Policy {
        tree,
        mtu: link.settings.mtu,
        tx_queue_len: link.settings.tx_queue_len,
        default_qdisc: DefaultQdisc::default(),
    })
}

/// The words before a script's name: what its first line names, as the kernel reads it, else a
/// shell.
fn interpreter(script: &Path) -> io::Result<Vec<OsString>> {
    let mut start = Vec::new();
    File::open(script)?.take(256).read_to_end(&mut start)?;
    let line = start.strip_prefix(b"#!").unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next();
    let line = line.unwrap_or_default().trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace);
    let (program, argument) = line.split_at(end.unwrap_or(line.len()));
    let words = [program, argument.trim_ascii()].map(|word| OsString::from_vec(word.to_vec()));
    let words: Vec<OsString> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Ok(match words.is_empty() {
        true => vec!["sh".into()],
        false => words,
    })
}

/// Runs the script where it sees the devices and no other network.
fn run(script: &Path, interpreter: &[OsString], socket: &Path, dev: &str) -> Result<(), Failure> {
    let failed =
        |text: String| Failure::new(Exit::Config, format!("{}: {text}", script.display()));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let patience = std::env::var(PATIENCE_VARIABLE).ok();
    let patience = patience.and_then(|millis| millis.parse().ok());
    let patience = patience.map_or(PATIENCE, Duration::from_millis);
    let mut command = Command::new(program);
    command.arg("exec").arg("--socket").arg(socket).arg("--");
    command.args(interpreter).arg(script);
    // The results alone are on this program's standard output.
    command.stdin(Stdio::null()).stdout(io::stderr());
    let ended = processes::run(&mut command, patience);
    match ended.map_err(|error| failed(format!("it cannot be run: {error}")))? {
        Ended::Itself(status) if status.success() => Ok(()),
        Ended::Itself(status) => {
            let text = format!("it ended with {status}; the device that it was given is {dev:?}");
            Err(failed(text))
        }
        Ended::Late => Err(failed(format!("it did not end within {patience:?}"))),
        Ended::Interrupted => Err(Failure::new(Exit::Interrupted, "interrupted")),
    }
}
