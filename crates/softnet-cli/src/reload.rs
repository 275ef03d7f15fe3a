//! Applying a changed configuration file while packets flow, all of it or nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use softnet_engine::{ApplyError, Devices, EngineError, MemberSpec, Missing, PortSpec, Spec};
use softnet_io::{DeviceSpec, NullSpec};

use crate::change::{self, Change, Object, Verb};
use crate::config::{self, Config, Warning};
use crate::failure::{Exit, Failure, chain};
use crate::setup::Engine;
use crate::state::{self, Saved, State};

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
    /// Names that the state has as added at run time, until the daemon has [started](Loaded::start).
    restored: Added,
    /// Links added at run time, which stay over a reload, whatever they are called by then.
    links: BTreeSet<u32>,
    /// Names of rate groups added at run time; they have no other.
    groups: BTreeSet<String>,
    /// Ports as the daemon before this one had them.
    pub(crate) before: Vec<PortSpec<DeviceSpec>>,
}

/// Names of what was added at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub ports: BTreeSet<String>,
    pub rate_groups: BTreeSet<String>,
}

/// The file as it is now, with what stays.
struct Anew {
    config: Config,
    warnings: Vec<Warning>,
    added: Added,
    /// Lines about what does not stay as it was.
    notes: Vec<String>,
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
            restored: Added::default(),
            links: BTreeSet::new(),
            groups: BTreeSet::new(),
            before: Vec::new(),
        })
    }

    /// Makes the links of a new engine. See [`Engine::apply`].
    pub(crate) fn start(&mut self, engine: &Engine, strict: bool) -> Result<Missing, Failure> {
        let missing = apply(&self.config, engine, strict)?;
        let added = std::mem::take(&mut self.restored);
        self.remember(engine, added);
        Ok(missing)
    }

    /// Names of what was added at run time, as they are now.
    fn added(&self, engine: &Engine) -> Added {
        let links = self.links.iter();
        let links = links.filter_map(|&index| engine.link(index).ok());
        Added {
            ports: links.map(|link| link.settings.name.clone()).collect(),
            rate_groups: self.groups.clone(),
        }
    }

    /// Follows what was added at run time, from its names on.
    fn remember(&mut self, engine: &Engine, added: Added) {
        let links = added.ports.iter();
        let links = links.filter_map(|name| engine.link_named(name).ok());
        self.links = links.map(|link| link.index).collect();
        self.groups = added.rate_groups;
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the state that the last daemon left be what is started, if the configuration names a
    /// file of it. Returned are lines about it for the log.
    pub(crate) fn restore(&mut self) -> Result<Vec<String>, Failure> {
        let Some(path) = &self.config.state else {
            return Ok(Vec::new());
        };
        let path = path.clone();
        let saved = self.written(&path)?;
        let saved = saved.map(|saved| self.become_saved(saved, &path.display().to_string()));
        Ok(saved.unwrap_or_default())
    }

    /// The state in a file, if there is one.
    fn written(&self, path: &Path) -> Result<Option<Saved>, Failure> {
        // Tenants' limits may be in it: not to be lost unnoticed.
        state::read(path, &self.config.hash, self.config.workers).map_err(|error| {
            let text = format!("{}; mend or remove it", chain(&error));
            Failure::new(Exit::Config, text)
        })
    }

    /// The state of a daemon that has died after it was asked for it: what it has written since, as
    /// no client has an answer before that, or else what it said.
    pub(crate) fn left(&self, from: &str, asked: &str) -> Result<Saved, Failure> {
        let asked = self.saved(from, asked)?;
        match &self.config.state {
            Some(path) if asked.config.state.as_ref() == Some(path) => {
                Ok(self.written(path)?.unwrap_or(asked))
            }
            _ => Ok(asked),
        }
    }

    /// Has a state be what is started. Returned are lines about it for the log.
    pub(crate) fn become_saved(&mut self, saved: Saved, from: &str) -> Vec<String> {
        self.before.clone_from(&saved.config.links.ports);
        if saved.is_of {
            (self.config.links, self.restored) = (saved.config.links, saved.added);
            self.config.places.clear();
            return vec![format!("state: as it was, from {from}")];
        }
        let (config, added, lines) = state::merge(&self.config, &saved);
        (self.config, self.restored) = (config, added);
        for port in &mut self.config.links.ports {
            let settings = &mut port.settings;
            let mut known = self.before.iter().map(|before| &before.settings);
            let known = known.find(|known| known.name == settings.name);
            // Without a key a port keeps the address that it has.
            settings.address = settings
                .address
                .or_else(|| known.and_then(|known| known.address));
        }
        let head = format!("state: the configuration differs from that of {from}, and decides");
        let lines = lines.lines().map(|line| format!("state: {line}"));
        std::iter::once(head).chain(lines).collect()
    }

    /// Reads the running state of another daemon.
    pub(crate) fn saved(&self, from: &str, text: &str) -> Result<Saved, Failure> {
        let Config { hash, workers, .. } = &self.config;
        let saved = state::parse(Path::new(from), text, hash, *workers);
        saved.map_err(|error| Failure::new(Exit::Config, chain(&error)))
    }

    /// The running state, to be written, or for a successor.
    pub(crate) fn state(&self, engine: &Engine) -> Result<State, Failure> {
        Ok(State {
            added: self.added(engine),
            running: self.running(engine)?,
        })
    }

    /// The running state as a configuration.
    pub(crate) fn running(&self, engine: &Engine) -> Result<Config, Failure> {
        let links = engine.spec();
        Ok(Config {
            links: links.map_err(|error| Failure::new(Exit::Failure, chain(&error)))?,
            places: Vec::new(),
            ..self.config.clone()
        })
    }

    /// The file as it is now, with what was added at run time and it does not name. Added ports
    /// stay in their bridges, if those stay.
    fn anew(&self, engine: &Engine) -> Result<Anew, Failure> {
        // The CPUs that this process may use can be others by now; its workers are those it has.
        let workers = Some(self.config.workers);
        let (mut config, warnings) = read(&self.path, self.socket.as_deref(), workers)?;
        let running = self.running(engine)?.links;
        let (added, notes) = keep_added(&mut config, &running, &self.added(engine));
        if config.of_engine() != self.config.of_engine() {
            let text = format!(
                "{}: [engine] differs from what it was; that needs a restart of the daemon",
                config.file
            );
            return Err(Failure::new(Exit::Config, text));
        }
        Ok(Anew {
            config,
            warnings,
            added,
            notes,
        })
    }

    /// Lines with what a reload would change.
    pub(crate) fn difference(&self, engine: &Engine) -> Result<String, Failure> {
        let anew = self.anew(engine)?;
        Ok(change::difference(&self.running(engine)?, &anew.config))
    }

    /// Carries out a change of what runs: all of it, or nothing. `own` clients alone may have a
    /// device opened. Returned are notes for the client.
    pub(crate) fn change(
        &mut self,
        engine: &Engine,
        change: &Change,
        own: bool,
    ) -> Result<String, Failure> {
        let Change {
            object, verb, name, ..
        } = change;
        let refused = |text: String| Failure::new(Exit::Config, text);
        let running = self.running(engine)?;
        let mut links = running.links.clone();
        let port = |links: &Spec<DeviceSpec>| {
            let mut ports = links.ports.iter();
            ports.position(|port| port.settings.name == *name)
        };
        match (object, verb) {
            // Not by the text: others may refer to what goes.
            (Object::Port, Verb::Del) => {
                let place = port(&links);
                let place = place.ok_or_else(|| refused(format!("there is no port {name:?}")))?;
                links.ports.remove(place);
                for port in &mut links.ports {
                    port.actions.retain(|action| action.to != *name);
                }
            }
            (Object::RateGroup, Verb::Del) => {
                if links.rate_groups.remove(name).is_none() {
                    return Err(refused(format!("there is no rate group {name:?}")));
                }
                let mut ports = links.ports.iter();
                if let Some(port) =
                    ports.find(|port| port.options.rate_group.as_ref() == Some(name))
                {
                    let port = &port.settings.name;
                    return Err(refused(format!(
                        "port {port:?} is in rate group {name:?}; take it out first: \
                         `softnet port set {port} rate_group=`"
                    )));
                }
            }
            (Object::RateGroup, Verb::Add | Verb::Set) => {
                let mut to = change::changed(&running, change).map_err(refused)?;
                let group = to.links.rate_groups.remove(name);
                links
                    .rate_groups
                    .extend(group.map(|group| (name.clone(), group)));
            }
            (Object::Port, Verb::Add | Verb::Set) => {
                let to = change::changed(&running, change).map_err(refused)?;
                let place = port(&to.links).map(|place| to.links.ports[place].clone());
                let to = place.ok_or_else(|| refused(format!("there is no port {name:?}")))?;
                let known = port(&links);
                let settings = known.map(|place| &links.ports[place].settings);
                if settings.is_some_and(|settings| settings.mtu != to.settings.mtu)
                    && engine.devices().is_foreign(&to.options.device)
                {
                    return Err(refused(EngineError::Foreign(name.clone()).to_string()));
                }
                let before = known.map(|place| &links.ports[place].options);
                let opens = before.is_none_or(|before| before.device != to.options.device);
                if opens && !own && to.options.device != DeviceSpec::Null(NullSpec) {
                    let text = "only root and the daemon's own user may have devices opened";
                    return Err(Failure::new(Exit::Failure, text));
                }
                match known {
                    Some(place) => links.ports[place] = to,
                    None => links.ports.push(to),
                }
            }
        }
        let config = Config {
            file: format!("{} {name:?}", object.words()),
            links,
            places: Vec::new(),
            ..self.config.clone()
        };
        let link = || engine.link_named(name).ok().map(|link| link.index);
        let before = link();
        apply(&config, engine, true)?;
        let was_added = match (object, verb) {
            (_, Verb::Set) => true,
            (Object::Port, Verb::Add) => {
                self.links.extend(link());
                true
            }
            (Object::Port, Verb::Del) => before.is_some_and(|link| self.links.remove(&link)),
            (Object::RateGroup, Verb::Add) => {
                self.groups.insert(name.clone());
                true
            }
            (Object::RateGroup, Verb::Del) => self.groups.remove(name),
        };
        Ok(match was_added {
            true => String::new(),
            false => format!(
                "{} {name:?} is in the configuration file: a reload brings it back\n",
                object.words()
            ),
        })
    }

    /// The ports, or one, with their keys and state.
    pub(crate) fn show(&self, engine: &Engine, name: &str) -> Result<Value, Failure> {
        let running = self.running(engine)?;
        let mut shown = Vec::new();
        for port in &running.links.ports {
            let own = &port.settings.name;
            if !name.is_empty() && own != name {
                continue;
            }
            let text = config::write_port(port);
            let document: toml::Table = text.parse().unwrap_or_default();
            let table = document.get("port").and_then(|list| list.get(0));
            let table = serde_json::to_value(table).unwrap_or_default();
            let link = engine.link_named(own);
            let stats = link.as_ref().map(|link| engine.port_stats(link.index));
            let stats = stats.ok().and_then(Result::ok).unwrap_or_default();
            let is_added = link
                .as_ref()
                .is_ok_and(|link| self.links.contains(&link.index));
            shown.push(json!({
                "name": own,
                "driver": table["driver"],
                "bridge": port.master,
                "open": link.is_ok_and(|link| link.open),
                "up": port.settings.up && stats.link.up,
                "mtu": stats.link.mtu,
                "status": stats.status,
                "run_time": is_added,
                "config": table,
                "text": text,
            }));
        }
        if !name.is_empty() && shown.is_empty() {
            return Err(Failure::new(
                Exit::Config,
                format!("there is no port {name:?}"),
            ));
        }
        Ok(json!({ "ports": shown }))
    }

    /// Reads the file again, and makes the engine what it says. What differs from the running
    /// state is changed, whoever made it so. If that fails, nothing has changed. Returned are lines
    /// about what was added at run time and is not as it was.
    pub(crate) fn reload(&mut self, engine: &Engine) -> Result<Vec<String>, Failure> {
        let anew = self.anew(engine)?;
        apply(&anew.config, engine, true)?;
        (self.config, self.warnings) = (anew.config, anew.warnings);
        self.remember(engine, anew.added);
        Ok(anew.notes)
    }
}

/// Makes the engine's links what a configuration says. See [`Engine::apply`].
fn apply(config: &Config, engine: &Engine, strict: bool) -> Result<Missing, Failure> {
    engine.apply(&config.links, strict).map_err(|mut error| {
        let lost = error.lost.take();
        let mut lines = Vec::new();
        let mut rest = Some(Box::new(error));
        while let Some(error) = rest {
            let place = error.port.and_then(|port| config.places.get(port));
            let place = place.map_or_else(|| config.file.clone(), |place| place.to_string());
            // A change that a client asks for is of no file, but of the object.
            let what = match *place == *error.what {
                true => error.to_string(),
                false => format!("{place}: {error}"),
            };
            let ApplyError { source, next, .. } = *error;
            lines.push(format!("{what}: {}", reason(source)));
            rest = next;
        }
        let text = lines.join("\n");
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

/// Adds to a configuration what was added at run time and it does not name. An added port stays in
/// its bridge and its rate group, whose rates stay with it, if the configuration lacks the group;
/// so do the filters that its hooks share. Lines say what cannot stay.
pub(crate) fn keep_added(
    config: &mut Config,
    from: &Spec<DeviceSpec>,
    added: &Added,
) -> (Added, Vec<String>) {
    let links = &mut config.links;
    let mut added = added.clone();
    let ports = links.ports.iter().map(|port| &port.settings.name);
    let bridges = links.bridges.iter().map(|bridge| &bridge.settings.name);
    let named: BTreeSet<String> = ports.chain(bridges).cloned().collect();
    added.ports.retain(|name| !named.contains(name));
    let known = &links.rate_groups;
    added.rate_groups.retain(|name| !known.contains_key(name));
    for port in &from.ports {
        if !added.ports.contains(&port.settings.name) {
            continue;
        }
        let mut port = port.clone();
        let bridges = &links.bridges;
        let master = port.master.as_ref();
        if !bridges
            .iter()
            .any(|bridge| Some(&bridge.settings.name) == master)
        {
            (port.master, port.member) = (None, MemberSpec::default());
        }
        // Nobody becomes unlimited by a file that lacks the limit.
        let group = port.options.rate_group.as_ref();
        added
            .rate_groups
            .extend(group.filter(|name| !known.contains_key(*name)).cloned());
        for block in config::blocks_of(&port) {
            if let Some(list) = from.blocks.get(&block) {
                links.blocks.entry(block).or_insert_with(|| list.clone());
            }
        }
        links.ports.push(port);
    }
    let names = links.ports.iter().map(|port| port.settings.name.clone());
    let names: BTreeSet<String> = names.collect();
    let mut notes = Vec::new();
    for port in &mut links.ports {
        let name = &port.settings.name;
        if added.ports.contains(name) {
            port.actions.retain(|action| {
                let stays = names.contains(&action.to);
                if !stays {
                    let to = &action.to;
                    notes.push(format!(
                        "port {name:?}: its mirror or redirect to {to:?} is removed: there is no \
                         such port any more"
                    ));
                }
                stays
            });
        }
    }
    let groups = from.rate_groups.iter();
    let groups = groups.filter(|(name, _)| added.rate_groups.contains(*name));
    links
        .rate_groups
        .extend(groups.map(|(name, &group)| (name.clone(), group)));
    (added, notes)
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
