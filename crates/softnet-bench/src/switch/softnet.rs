//! Softnet's own daemon: `softnet run` on a configuration of two TAP ports and a bridge.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Join, LATENCY, Shape};
use crate::error::BenchError;
use crate::hosts::{ADDRESS_A, ADDRESS_B, Site, with_prefix};
use crate::process::{self, Process};

#[derive(Debug, Default)]
pub(super) struct Softnet {
    /// The daemon, once it is known to be there.
    program: Option<PathBuf>,
}

impl Join for Softnet {
    fn name(&self) -> &'static str {
        crate::report::OURS
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        if self.program.is_none() {
            self.program = Some(program()?);
        }
        Ok(())
    }

    fn cannot_shape(&self) -> Option<&'static str> {
        None
    }

    fn join(&self, site: &mut Site, shape: Option<Shape>) -> Result<(), BenchError> {
        let program = self
            .program
            .as_deref()
            .unwrap_or_else(|| Path::new("softnet"));
        let path = site.directory.path().join("softnet.toml");
        std::fs::write(&path, configuration(site, shape))
            .map_err(|e| BenchError::io(format!("writing {}", path.display()), e))?;
        let daemon = Process::start(site.switch.command(program).arg("run").arg(&path))?;
        site.daemons.push(daemon);
        Ok(())
    }
}

fn configuration(site: &Site, shape: Option<Shape>) -> String {
    let qdisc = shape.map_or_else(String::new, |Shape { rate, burst, .. }| {
        format!("qdisc = {{ kind = \"tbf\", rate = \"{rate}\", burst = \"{burst}\", latency = \"{LATENCY}\" }}\n")
    });
    let port = |name: &str, netns: &str, address: String, qdisc: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"tap\"\nnetns = \"{netns}\"\n\
             address = [\"{address}\"]\n{qdisc}\n"
        )
    };
    let a = port("a0", site.a.name(), with_prefix(ADDRESS_A), "");
    let b = port("b0", site.b.name(), with_prefix(ADDRESS_B), &qdisc);
    format!("{a}{b}[[bridge]]\nname = \"br0\"\nports = [\"a0\", \"b0\"]\n")
}

/// The program that was built with this one. Under cargo it is brought up to date first, so that no old one is measured.
fn program() -> Result<PathBuf, BenchError> {
    let this = std::env::current_exe().map_err(|e| BenchError::io("finding this program", e))?;
    let directory = this.parent().unwrap_or_else(|| Path::new("."));
    let program = directory.join("softnet");
    let cargo = std::env::var_os("CARGO");
    if cargo.is_some() || !program.is_file() {
        let mut build = Command::new(cargo.unwrap_or_else(|| "cargo".into()));
        build
            .args(["build", "--quiet", "--package", "softnet-cli"])
            .arg("--target-dir");
        build.arg(directory.parent().unwrap_or(directory));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        process::output(&mut build)?;
    }
    Ok(program)
}
