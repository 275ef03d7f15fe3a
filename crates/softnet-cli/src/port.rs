//! `softnet port` and `softnet rate-group` on the command line.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::Value;
use softnet_rtnl::nl::Operation;

use crate::change::{Change, Object, Verb};
use crate::client::{Daemon, Reach};
use crate::failure::{Exit, Failure};
use crate::report;

/// A key of the configuration file and its value.
type Pair = (String, String);

/// A command about objects of the daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct Command<V: Subcommand> {
    /// Socket on which the daemon listens, if not the default one
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    verb: V,
}

impl<V: Subcommand> Command<V> {
    /// The command, and where the daemon listens: at `path`, unless another one is named.
    fn parts(self, path: Option<PathBuf>) -> (V, Reach) {
        (self.verb, Reach::default().at(self.socket.or(path)))
    }
}

/// Commands about ports.
#[derive(Debug, Subcommand)]
pub(crate) enum Port {
    /// Add a port; it stays until `port del`, also over a reload of the file
    ///
    /// Keys are those of `[[port]]`, and `bridge=NAME`. Example:
    /// `softnet port add vm7 driver=vhost_user socket=/run/vm7.sock bridge=br0
    /// qdisc.kind=fq_codel`.
    Add(Words),
    /// Change keys of a port while packets flow; `KEY=` restores the default
    Set(Words),
    /// Remove a port
    ///
    /// A port of the configuration file comes back with `softnet reload`.
    Del(Name),
    /// Show the ports, or one of them with all its keys
    Show {
        /// Show only this port
        name: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Commands about groups of ports that share rates.
#[derive(Debug, Subcommand)]
pub(crate) enum RateGroup {
    /// Add a group, with keys of `[[rate_group]]`: `softnet rate-group add tenant-a rate=1gbit`
    Add(Words),
    /// Change keys of a group while packets flow
    Set(Words),
    /// Remove a group that no port is in
    Del(Name),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Words {
    /// Name of the object
    name: String,
    /// Keys of the configuration file with values, as in `mtu=9000`, `storm.broadcast=1000` or
    /// `allowed_macs=02:00:00:00:00:01,02:00:00:00:00:02`
    #[arg(value_name = "KEY=VALUE", value_parser = pair)]
    keys: Vec<Pair>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Name {
    /// Name of the object
    name: String,
}

fn pair(word: &str) -> Result<Pair, String> {
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

/// Carries out a command about ports.
pub(crate) fn run(command: Command<Port>, at: Option<PathBuf>) -> Result<(), Failure> {
    let (port, reach) = command.parts(at);
    let change = match port {
        Port::Add(words) => words.change(Object::Port, Verb::Add),
        Port::Set(words) => words.change(Object::Port, Verb::Set),
        Port::Del(name) => name.change(Object::Port),
        Port::Show { name, json } => return show(name.as_deref(), json, &reach),
    };
    change.ask(&reach)
}

/// Carries out a command about rate groups.
pub(crate) fn run_group(command: Command<RateGroup>, at: Option<PathBuf>) -> Result<(), Failure> {
    let (group, reach) = command.parts(at);
    let change = match group {
        RateGroup::Add(words) => words.change(Object::RateGroup, Verb::Add),
        RateGroup::Set(words) => words.change(Object::RateGroup, Verb::Set),
        RateGroup::Del(name) => name.change(Object::RateGroup),
    };
    change.ask(&reach)
}

impl Words {
    fn change(self, object: Object, verb: Verb) -> Change {
        Change {
            object,
            verb,
            name: self.name,
            keys: self.keys,
        }
    }
}

impl Name {
    fn change(self, object: Object) -> Change {
        let name = self.name;
        Words { name, keys: vec![] }.change(object, Verb::Del)
    }
}

impl Change {
    fn ask(&self, reach: &Reach) -> Result<(), Failure> {
        let argument = serde_json::to_string(self)
            .map_err(|error| Failure::because(Exit::Failure, "cannot word the change", &error))?;
        let notes = Daemon::connect(reach)?.ask(Operation::Change, &argument)?;
        notes.lines().for_each(report::note);
        Ok(())
    }
}

/// Prints ports: a table, or all keys of one.
fn show(name: Option<&str>, json: bool, reach: &Reach) -> Result<(), Failure> {
    let text = Daemon::connect(reach)?.ask(Operation::Show, name.unwrap_or_default())?;
    let print = |text: &str| {
        report::print(text)
            .map_err(|error| Failure::because(Exit::Failure, "cannot print the ports", &error))
    };
    if json {
        return print(&(text + "\n"));
    }
    let answer: Value = serde_json::from_str(&text).map_err(|error| {
        let what = "the daemon's answer is not understood";
        Failure::because(Exit::Failure, what, &error)
    })?;
    let ports = answer["ports"].as_array().map_or(&[][..], Vec::as_slice);
    match (name, ports) {
        (Some(_), [port]) => print(&report::printable(&one(port))),
        _ => print(&report::printable(&table(ports))),
    }
}

/// A line for each port.
fn table(ports: &[Value]) -> String {
    let head = ["port", "driver", "link", "bridge", "qdisc", "from"];
    let mut rows = vec![head.map(str::to_owned)];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    rows.extend(ports.iter().map(|port| {
        let kind = match &port["config"]["qdisc"] {
            Value::Array(list) => text(list.first().map_or(&Value::Null, |root| &root["kind"])),
            qdisc => text(&qdisc["kind"]),
        };
        let link = match (port["open"].as_bool(), port["up"].as_bool()) {
            (Some(false), _) => "no device",
            (_, Some(true)) => "up",
            _ => "down",
        };
        let from = match port["run_time"].as_bool() {
            Some(true) => "port add",
            _ => "file",
        };
        let [name, driver, bridge] = ["name", "driver", "bridge"].map(|key| text(&port[key]));
        [name, driver, link.to_owned(), bridge, kind, from.to_owned()]
    }));
    report::table(&rows, &[0, 1, 2, 3, 4, 5])
}

/// The keys of one port, as the file has them, after its state.
fn one(port: &Value) -> String {
    let state = ["open", "up", "status", "run_time", "bridge"].map(|key| match &port[key] {
        Value::Null => String::new(),
        value => format!("# {key}: {value}\n"),
    });
    state.concat() + port["text"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_shown_in_a_line_each() {
        let ports = [
            json!({
                "name": "web", "driver": "tap", "open": true, "up": true, "bridge": "br0",
                "run_time": false, "config": { "qdisc": [{ "kind": "htb" }] },
            }),
            json!({
                "name": "vm", "driver": "vhost_user", "open": false, "up": false,
                "bridge": null, "run_time": true, "config": { "qdisc": { "kind": "fq" } },
            }),
        ];
        assert_eq!(
            table(&ports),
            "port  driver      link       bridge  qdisc  from\n\
             web   tap         up         br0     htb    file\n\
             vm    vhost_user  no device  -       fq     port add\n"
        );
    }

    #[test]
    fn words_have_a_key_and_a_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
