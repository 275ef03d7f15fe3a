//! The policies that a command line names: a tree, a port of a configuration, or what a script
//! makes; each with what of it is not simulated.

use std::fs;
use std::io;
use std::path::Path;

use softnet::mem::Pool;
use softnet_engine::{PortSpec, Settings};
use softnet_io::DeviceSpec;
use softnet_tc::{DefaultQdisc, FilterOp, Handle, HookFilters, QdiscEnv, TreeSpec};

use super::{Options, script};
use crate::config::{self, Expectation};
use crate::failure::{Exit, Failure};
use crate::report::note;

/// A tree, and what its qdiscs take from their device.
pub(super) struct Policy {
    pub tree: TreeSpec,
    pub mtu: u32,
    pub tx_queue_len: u32,
    pub default_qdisc: DefaultQdisc,
}

/// Seed of what is random in qdiscs, where none is given.
pub(super) const SEED: u64 = 1;

impl Policy {
    /// The environment of its qdiscs.
    pub(super) fn env(&self, seed: Option<u64>, pool: &Pool) -> QdiscEnv {
        QdiscEnv {
            mtu: self.mtu,
            txqueuelen: self.tx_queue_len,
            default_qdisc: self.default_qdisc,
            // Another sequence than that of flows with this seed.
            seed: !seed.unwrap_or(SEED).rotate_left(32),
            ..QdiscEnv::new(pool)
        }
    }
}

/// The file of the policy that the command line names.
pub(super) fn name(options: &Options) -> String {
    let file = options.tree.as_ref().or(options.config.as_ref());
    let file = file.or(options.script.as_ref());
    file.map_or_else(String::new, |path| path.display().to_string())
}

/// The policy that the command line names. Adds what its file expects of it.
pub(super) fn first(
    options: &Options,
    expected: &mut Vec<Expectation>,
) -> Result<Policy, Failure> {
    let named = match (&options.tree, &options.config, &options.script) {
        (Some(tree), ..) => (tree, of_tree(tree)),
        (_, Some(config), _) => (config, of_port(options, None, config, expected)),
        (.., Some(script)) => (script, of_script(options, None, script)),
        _ => {
            let text = "name a policy: --tree, --config and --port, or --script";
            return Err(Failure::new(Exit::Config, text));
        }
    };
    let (path, policy) = named;
    one_queue(path, policy?)
}

/// Another policy, by its file: a script, a configuration or a tree. `name` is the device or port
/// if it is not that of the first.
pub(super) fn other(
    options: &Options,
    name: Option<&str>,
    path: &Path,
) -> Result<Policy, Failure> {
    let unread =
        |error: io::Error| Failure::because(Exit::Config, path.display().to_string(), &error);
    must_be_file(path).map_err(unread)?;
    let text = fs::read(path).map_err(unread)?;
    let is_toml = path.extension().is_some_and(|end| end == "toml");
    let policy = match is_toml {
        true if has_ports(&text) => of_port(options, name, path, &mut Vec::new()),
        true => of_tree(path),
        false if text.starts_with(b"#!") || path.extension().is_some_and(|end| end == "sh") => {
            of_script(options, name, path)
        }
        false if options.tree.is_some() => of_tree(path),
        false if options.config.is_some() => of_port(options, name, path, &mut Vec::new()),
        false => of_script(options, name, path),
    };
    one_queue(path, policy?)
}

/// Refuses what cannot be read twice, such as a pipe, or has no end: a policy's kind is looked at
/// before it is read.
pub(super) fn must_be_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// True of a configuration: a tree has no ports. A text that is wrong is read as a tree, and
/// refused.
fn has_ports(text: &[u8]) -> bool {
    let table = std::str::from_utf8(text).ok();
    let table = table.and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.contains_key("port") || table.contains_key("include"))
}

fn of_tree(path: &Path) -> Result<Policy, Failure> {
    let (spec, warnings) =
        config::load_tree(path).map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    warnings.iter().for_each(note);
    let Settings {
        mtu, tx_queue_len, ..
    } = Settings::default();
    Ok(Policy {
        tree: spec.into(),
        mtu,
        tx_queue_len,
        default_qdisc: DefaultQdisc::default(),
    })
}

fn of_script(options: &Options, name: Option<&str>, path: &Path) -> Result<Policy, Failure> {
    let dev = name.or(options.dev.as_deref());
    let dev = dev.or(options.port.as_deref());
    let dev = dev.ok_or_else(|| missing("--dev", path))?;
    let policy = script::policy(path, dev, options.seed.unwrap_or(SEED))?;
    // The script has been told the others, by tc.
    let warnings = softnet_tc::warnings(&policy.tree, 1, false, policy.mtu).into_iter();
    for warning in warnings.filter(|warning| warning.parameter == "default") {
        note(format_args!("{}: warning: {warning}", path.display()));
    }
    Ok(policy)
}

fn of_port(
    options: &Options,
    name: Option<&str>,
    path: &Path,
    expected: &mut Vec<Expectation>,
) -> Result<Policy, Failure> {
    let config = |text: String| Failure::new(Exit::Config, text);
    let name = name.or(options.port.as_deref());
    let name = name.or(options.dev.as_deref());
    let name = name.ok_or_else(|| missing("--port", path))?;
    let (file, warnings) = config::load(path, None).map_err(|error| config(error.to_string()))?;
    warnings.iter().for_each(note);
    let of_port = file.expected.into_iter().filter(|of| of.port == name);
    expected.extend(of_port.map(|of| of.expectation));
    let mut ports = file.links.ports.into_iter();
    let port = ports.find(|port| port.settings.name == name);
    let port = port.ok_or_else(|| config(format!("{}: there is no port {name:?}", file.file)))?;
    let not_simulated = not_simulated(&port, options.cpus.is_some());
    if !not_simulated.is_empty() {
        note(format_args!(
            "{}: warning: of port {name:?} this is not simulated: {}",
            file.file,
            not_simulated.join(", ")
        ));
    }
    Ok(Policy {
        tree: port.qdisc.into(),
        mtu: port.settings.mtu,
        tx_queue_len: port.settings.tx_queue_len,
        default_qdisc: file.settings.default_qdisc,
    })
}

fn missing(option: &str, path: &Path) -> Failure {
    let text = format!("{}: {option} is missing: whose tree is it?", path.display());
    Failure::new(Exit::Config, text)
}

/// Keys of a port that change what its tree does, and that the simulated queues do not have.
fn not_simulated(port: &PortSpec<DeviceSpec>, has_cpus: bool) -> Vec<&'static str> {
    let options = &port.options;
    let keys = [
        (
            options.parallel && !has_cpus,
            "parallel (the tree has one instance; --cpus N has it on N)",
        ),
        (
            options.rate_group.is_some(),
            "rate_group (no other port shares it, and it has no limit)",
        ),
        (!port.actions.is_empty(), "redirect and mirror"),
    ];
    let keys = keys.into_iter().filter(|(is_set, _)| *is_set);
    keys.map(|(_, key)| key).collect()
}

/// The policy for the one queue that is simulated: of `mq` and `mqprio`, what is at their first
/// queue. Warns of what runs beside a tree.
fn one_queue(path: &Path, mut policy: Policy) -> Result<Policy, Failure> {
    let path = path.display();
    let has_filters = |hook: &HookFilters| hook.block != 0 || !hook.filters.is_empty();
    let hook = policy.tree.hook();
    if hook.is_some_and(|hook| has_filters(&hook.ingress) || hook.egress.block != 0) {
        note(format_args!(
            "{path}: warning: filters of ingress and of blocks are not simulated"
        ));
    }
    let Some(root) = policy.tree.root().filter(|root| root.qdisc.is_per_queue()) else {
        return Ok(policy);
    };
    note(format_args!(
        "{path}: warning: one queue is simulated: the first one of {} {}",
        root.qdisc.kind(),
        root.handle
    ));
    let first = policy.tree.child_of(root.handle.class(1));
    let tree = match first.map(|first| first.handle) {
        Some(first) => below(&policy.tree, first),
        None => Some(TreeSpec::new()),
    };
    policy.tree = tree.ok_or_else(|| {
        let text = format!("{path}: what is at the first queue is no tree by itself");
        Failure::new(Exit::Config, text)
    })?;
    Ok(policy)
}

/// A tree of a qdisc and what is below it. `None`: it makes none.
fn below(tree: &TreeSpec, top: Handle) -> Option<TreeSpec> {
    let mut part = TreeSpec::new();
    let mut next = vec![(Handle::ROOT, top)];
    while let Some((parent, handle)) = next.pop() {
        let node = tree.node(handle)?;
        part.add(parent, handle, node.qdisc.clone()).ok()?;
        part.set_stab(handle, node.stab.clone()).ok()?;
        let own = tree.added_classes();
        let mut classes: Vec<_> = own.filter(|(class, _)| class.qdisc() == handle).collect();
        // Each is added when its parent is there.
        while !classes.is_empty() {
            let before = classes.len();
            classes
                .retain(|(class, of)| part.add_class(of.parent, *class, of.spec.clone()).is_err());
            if classes.len() == before {
                return None;
            }
        }
        let children = tree.nodes().filter(|node| node.parent != Handle::ROOT);
        let children = children.filter(|node| node.parent.qdisc() == handle);
        next.extend(children.map(|node| (node.parent, node.handle)));
    }
    let is_part = |parent: Handle| part.node(parent.qdisc()).is_some();
    let filters: Vec<_> = tree
        .filters()
        .filter(|of| is_part(of.parent))
        .cloned()
        .collect();
    for filter in filters {
        part.put_filter(FilterOp::Restore, filter).ok()?;
    }
    Some(part)
}
