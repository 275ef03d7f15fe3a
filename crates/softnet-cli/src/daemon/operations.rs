//! Answers to clients of the control socket that ask for more than rtnetlink has.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use softnet_rtnl::nl::{Client, Errno, Error, Operation};

use super::{counts, lock};
use crate::capture;
use crate::change::Change;
use crate::config;
use crate::counters;
use crate::failure::{Exit, Failure};
use crate::left_out;
use crate::log::{Level, log, log_at};
use crate::notify::Notify;
use crate::reload::Loaded;
use crate::selection::Selection;
use crate::setup::Engine;

/// Answers to the requests of `softnet stats`, `softnet dump-config` and `softnet reload` ask for.
pub(super) fn operations(
    engine: &Arc<Mutex<Engine>>,
    loaded: &Arc<Mutex<Loaded>>,
    notify: Notify,
) -> impl FnMut(Operation, &[u8], &Client) -> Result<String, Error> + Send + use<> {
    let (engine, loaded) = (engine.clone(), loaded.clone());
    let refused = |failure: Failure| {
        let errno = match failure.exit {
            Exit::Config => Errno::EINVAL,
            _ => Errno::EIO,
        };
        Error::new(errno).text(failure.to_string())
    };
    let invalid = |text: String| Error::new(Errno::EINVAL).text(text);
    move |operation, argument: &[u8], client: &Client| match operation {
        Operation::Stats => {
            let selection: Selection = words(argument).parse().map_err(invalid)?;
            let mut stats = counts::selected(&lock(&engine), &selection);
            selection.apply(&mut stats).map_err(invalid)?;
            Ok(match (selection.text, selection.is_whole()) {
                (false, true) => counters::json(&stats).to_string(),
                (false, false) => counters::selected_json(&stats).to_string(),
                (true, true) => counters::live(&stats),
                (true, false) => counters::selected(&stats),
            })
        }
        Operation::DumpConfig => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let running = loaded.running(&engine).map_err(refused)?;
            Ok(left_out::comments(&engine) + &config::write(&running))
        }
        Operation::Reload => {
            let done = reload(&loaded, &engine, &notify);
            audit(client, "reload", done.as_ref().err());
            done.map_err(refused)
        }
        Operation::Change => {
            let change: Change = serde_json::from_str(&words(argument))
                .map_err(|error| invalid(error.to_string()))?;
            let notes = lock(&loaded).change(&lock(&engine), &change, client.own);
            audit(client, change.to_string(), notes.as_ref().err());
            notes.map_err(refused)
        }
        Operation::Show => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let shown = loaded.show(&engine, &words(argument)).map_err(refused)?;
            Ok(shown.to_string())
        }
        Operation::DryRun => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            loaded.difference(&engine).map_err(refused)
        }
        Operation::Log => {
            let level = words(argument);
            if !level.is_empty() {
                let level: Level = level.parse().map_err(invalid)?;
                // Also told if the new level hides it.
                audit(client, format_args!("log {level}"), None);
                level.set();
            }
            Ok(format!("{}\n", Level::current()))
        }
        // It gets all files.
        Operation::Replace if !client.own => {
            let text = "only root and the daemon's own user may replace it";
            Err(Error::new(Errno::EPERM).text(text))
        }
        Operation::Replace => {
            audit(client, "replace by another daemon", None);
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let state = loaded.state(&engine).map_err(refused)?;
            let failed = |error| Failure::because(Exit::Failure, "state", &error);
            state.text().map_err(|error| refused(failed(error)))
        }
        Operation::Capture => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Starts the captures that clients ask for.
pub(super) fn captures(
    engine: &Arc<Mutex<Engine>>,
) -> impl FnMut(&[u8], &Client) -> Result<(String, OwnedFd), Error> + Send + use<> {
    let engine = engine.clone();
    move |argument, client| capture::serve::start(&engine, &words(argument), client)
}

/// Logs who changed what, and why it was refused.
pub(super) fn audit(client: &Client, what: impl Display, refused: Option<&Failure>) {
    let uid = client.uid;
    let refused = refused.map(|failure| format!(": refused: {failure}"));
    let refused = refused.unwrap_or_default();
    log_at(Level::Notice, format_args!("user {uid}: {what}{refused}"));
}

/// The argument of an operation. Messages are padded.
fn words(argument: &[u8]) -> String {
    let words = String::from_utf8_lossy(argument);
    words.trim_end_matches('\0').to_owned()
}

/// Applies the file anew. What is to be warned of in it is logged, and returned as lines.
pub(super) fn reload(
    loaded: &Mutex<Loaded>,
    engine: &Mutex<Engine>,
    notify: &Notify,
) -> Result<String, Failure> {
    let mut loaded = lock(loaded);
    notify.reloading();
    let reloaded = loaded.reload(&lock(engine));
    let summary = loaded.config.summary();
    notify.ready(&summary);
    let warnings = loaded.warnings.iter().map(ToString::to_string);
    let mut lines = String::new();
    for line in warnings.chain(reloaded?) {
        log_at(Level::Warning, &line);
        lines += &format!("{line}\n");
    }
    log(format_args!("reloaded: {summary}"));
    Ok(lines)
}
