//! `--script`: a script of tc, ip and bridge is run, unmodified, against devices that nothing is
//! behind; the tree that it leaves at one of them is what is simulated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnet_engine::{PortSpec, Settings};
use softnet_io::{DeviceSpec, NullSpec, Scheduling};
use softnet_rtnl::Rtnl;
use softnet_rtnl::server::{self, Listen, Server};
use softnet_tc::QdiscSpec;

use crate::failure::{Exit, Failure};
use crate::setup;

/// Time that a script has.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The tree that a script makes at the device `dev`.
pub(super) fn tree(script: &Path, dev: &str) -> Result<QdiscSpec, Failure> {
    let cannot = |what: &str, error: &dyn std::error::Error| {
        Failure::because(Exit::Failure, format!("cannot {what}"), error)
    };
    if let Some(wrong) = Settings::wrong_name(dev) {
        return Err(Failure::new(
            Exit::Config,
            format!("--dev: {dev:?} {wrong}"),
        ));
    }
    fs::metadata(script)
        .map_err(|error| Failure::because(Exit::Config, script.display().to_string(), &error))?;
    let scratch = std::env::temp_dir().join(format!("softnet-sim-{}", std::process::id()));
    fs::create_dir(&scratch).map_err(|error| cannot("make a folder", &error))?;
    let scratch = Scratch(scratch);
    let socket = scratch.0.join("socket");
    let (scheduling, _) = Scheduling::best(Some(Scheduling::Normal));
    let engine = setup::start(1, &[], scheduling, 1024, Default::default())
        .map_err(|error| cannot("start the devices", &error))?;
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
    let server = server.start(Rtnl::new(engine.clone()));
    let server = server.map_err(|error| cannot("listen for the script", &error))?;
    let run = run(script, &socket);
    server.stop().map_err(|error| cannot("end", &error))?;
    run?;
    let engine = engine
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let tree = engine.read_tree(index, |tree, _| tree.spec().clone());
    let tree = tree.map_err(|error| {
        Failure::because(
            Exit::Config,
            format!("the script leaves no device {dev:?}"),
            &error,
        )
    })?;
    Ok(match tree.is_empty() {
        true => QdiscSpec::default(),
        false => QdiscSpec::Tree(tree),
    })
}

/// Runs the script where it sees the devices and no other network.
fn run(script: &Path, socket: &Path) -> Result<(), Failure> {
    let failed =
        |text: String| Failure::new(Exit::Config, format!("{}: {text}", script.display()));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.arg("exec").arg("--socket").arg(socket).arg("--");
    command.arg("sh").arg("-e").arg(script);
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(format!("it ended with {status}"))),
            Ok(None) if Instant::now() < until => {}
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("it did not end within {PATIENCE:?}")));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
