//! Applying a changed configuration file while packets flow, all of it or nothing.

use std::path::{Path, PathBuf};

use crate::apply::apply;
use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::running;
use crate::setup::Control;

/// The file that the daemon runs.
#[derive(Debug)]
pub(crate) struct Loaded {
    path: PathBuf,
    /// Where the command line has the daemon listen.
    socket: Option<PathBuf>,
    /// What the file said when it was last applied.
    pub(crate) config: Config,
}

impl Loaded {
    /// Reads and checks a file. A socket on the command line is stronger than its own.
    pub(crate) fn load(path: &Path, socket: Option<PathBuf>) -> Result<Loaded, Failure> {
        let config = read(path, socket.as_deref())?;
        Ok(Loaded {
            path: path.to_owned(),
            socket,
            config,
        })
    }

    /// Reads the file again, and makes the engine what it says. What differs from the running
    /// state is changed, whoever made it so. If that fails, nothing has changed.
    pub(crate) fn reload(&mut self, control: &mut Control) -> Result<(), Failure> {
        let config = read(&self.path, self.socket.as_deref())?;
        let of_engine = |config: &Config| Config {
            ports: Vec::new(),
            bridges: Vec::new(),
            ..config.clone()
        };
        if of_engine(&config) != of_engine(&self.config) {
            let text = format!(
                "{}: [engine] differs from what it was; that needs a restart of the daemon",
                config.file
            );
            return Err(Failure::new(Exit::Config, text));
        }
        let before = running::config(&self.config, control);
        if let Err(failure) = apply(&config, control) {
            // What was there can be had again, but for devices that somebody else has taken.
            return Err(match apply(&before, control) {
                Ok(()) => failure,
                Err(worse) => Failure::new(
                    Exit::Failure,
                    format!("{failure}; and not all of what was before came back: {worse}"),
                ),
            });
        }
        self.config = config;
        Ok(())
    }
}

fn read(path: &Path, socket: Option<&Path>) -> Result<Config, Failure> {
    let config = config::load(path);
    let mut config = config.map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    if let Some(socket) = socket {
        config.control.socket = Some(socket.to_owned());
    }
    Ok(config)
}
