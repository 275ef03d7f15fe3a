//! Applying a changed configuration file while packets flow, all of it or nothing.

use std::path::{Path, PathBuf};

use softnet_engine::{ApplyError, EngineError, Missing, Spec};

use crate::config::{self, Config, Warning};
use crate::failure::{Exit, Failure, chain};
use crate::setup::Engine;

/// The file that the daemon runs.
#[derive(Debug)]
pub(crate) struct Loaded {
    path: PathBuf,
    /// Where the command line has the daemon listen.
    socket: Option<PathBuf>,
    /// The file as it was last applied.
    pub(crate) config: Config,
    /// The warnings about it.
    pub(crate) warnings: Vec<Warning>,
}

impl Loaded {
    /// Reads and checks a file. A socket on the command line is stronger than its own.
    pub(crate) fn load(path: &Path, socket: Option<PathBuf>) -> Result<Loaded, Failure> {
        let (config, warnings) = read(path, socket.as_deref(), None)?;
        Ok(Loaded {
            path: path.to_owned(),
            socket,
            config,
            warnings,
        })
    }

    /// Reads the file again, and makes the engine what it says. What differs from the running
    /// state is changed, whoever made it so. If that fails, nothing has changed.
    pub(crate) fn reload(&mut self, engine: &Engine) -> Result<(), Failure> {
        // The CPUs that this process may use can be others by now; its workers are those it has.
        let workers = Some(self.config.workers);
        let (config, warnings) = read(&self.path, self.socket.as_deref(), workers)?;
        let of_engine = |config: &Config| Config {
            links: Spec::default(),
            places: Vec::new(),
            ..config.clone()
        };
        if of_engine(&config) != of_engine(&self.config) {
            let text = format!(
                "{}: [engine] differs from what it was; that needs a restart of the daemon",
                config.file
            );
            return Err(Failure::new(Exit::Config, text));
        }
        apply(&config, engine, true)?;
        (self.config, self.warnings) = (config, warnings);
        Ok(())
    }
}

/// Makes the engine's links what a configuration says. See [`Engine::apply`].
pub(crate) fn apply(config: &Config, engine: &Engine, strict: bool) -> Result<Missing, Failure> {
    engine.apply(&config.links, strict).map_err(|error| {
        let place = error.port.and_then(|port| config.places.get(port));
        let place = place.map_or(String::new(), |place| {
            format!(":{}:{}", place.line, place.column)
        });
        let text = format!("{}{place}: {error}", config.file);
        let ApplyError { source, lost, .. } = error;
        let text = format!("{text}: {}", reason(source));
        match lost {
            None => Failure::new(Exit::Config, text),
            Some(worse) => {
                let worse = chain(&*worse);
                let lost = "and not all of what was before came back";
                Failure::new(Exit::Failure, format!("{text}; {lost}: {worse}"))
            }
        }
    })
}

/// Why a call was refused. What the device says is enough.
pub(crate) fn reason(error: EngineError) -> String {
    match error {
        EngineError::Device { source, .. } => chain(&*source),
        error => chain(&error),
    }
}

fn read(
    path: &Path,
    socket: Option<&Path>,
    workers: Option<usize>,
) -> Result<(Config, Vec<Warning>), Failure> {
    let loaded = config::load(path, workers);
    let (mut config, warnings) =
        loaded.map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    if let Some(socket) = socket {
        config.control.socket = Some(socket.to_owned());
    }
    Ok((config, warnings))
}
