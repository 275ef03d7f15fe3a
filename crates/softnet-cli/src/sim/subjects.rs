//! The subjects of expectations: one that does not exist is a mistake, told before the run.

use softnet::mem::{Pool, PoolConfig};
use softnet_tc::{Handle, Tree};

use super::Options;
use super::generate::Generated;
use super::policy::Policy;
use crate::config::{Expectation, Figure, nearest};
use crate::failure::{Exit, Failure};

/// Refuses expectations of classes and flows that do not exist.
pub(super) fn check(
    expected: &[Expectation],
    options: &Options,
    policy: &Policy,
    reverse: Option<&Policy>,
) -> Result<(), Failure> {
    let of_reverse = reverse.map(handles_of);
    let (Some(handles), None | Some(Some(_))) = (handles_of(policy), &of_reverse) else {
        // The run says what is wrong with it.
        return Ok(());
    };
    let of_reverse = of_reverse.flatten();
    let port = options.port.as_ref().or(options.dev.as_ref());
    let root = ["root".to_owned()];
    let mut names = root.to_vec();
    names.extend(port.cloned());
    names.extend(options.generate.iter().map(|of| of.shown_name().to_owned()));
    for of in expected {
        let subject = of.subject.as_str();
        let (handles, names, missing) = match (of.reverse, &of_reverse) {
            (false, _) => (
                &handles,
                &names[..],
                format!("there is no class and no flow {subject:?}; flows have names by name="),
            ),
            (true, Some(handles)) => (
                handles,
                &root[..],
                format!("there is no class {subject:?} in the reverse direction"),
            ),
            (true, None) => {
                let text = format!(
                    "expectation of \"reverse {subject}\": column 1: there is no policy for the \
                     reverse direction; name one by --reverse"
                );
                return Err(Failure::new(Exit::Config, text));
            }
        };
        let is_port = !of.reverse && port.is_some_and(|port| port == subject);
        if is_port && options.generate.iter().any(|of| of.shown_name() == subject) {
            let text = format!(
                "expectation of {subject:?}: column 1: the port and a flow have that name; \
                 give the flow another, or write root if the port is meant"
            );
            return Err(Failure::new(Exit::Config, text));
        }
        let handle = subject.parse::<Handle>().ok();
        let is_known = handle.is_some_and(|handle| handles.contains(&handle));
        if is_known || names.iter().any(|name| name == subject) {
            let reacts = |flow: &Generated| flow.tcp.is_some() || flow.echo.is_some();
            let mut flows = options.generate.iter();
            let has_rtt = flows.any(|of| of.shown_name() == subject && reacts(of)) && !of.reverse;
            if matches!(of.figure, Figure::Rtt(_)) && !has_rtt {
                let text = "only connections (tcp=, web=) and pings have a round-trip time";
                let text = format!("expectation of {subject:?}: {text}");
                return Err(Failure::new(Exit::Config, text));
            }
            continue;
        }
        let known: Vec<String> = handles.iter().map(Handle::to_string).collect();
        let known: Vec<&str> = names.iter().chain(&known).map(String::as_str).collect();
        let near = nearest(subject, &known);
        let near = near.map_or(String::new(), |near| format!("; is {near:?} meant?"));
        return Err(Failure::new(
            Exit::Config,
            format!("expectation of {subject:?}: column 1: {missing}{near}"),
        ));
    }
    Ok(())
}

/// The handles of a policy's classes and qdiscs; none if it is wrong.
fn handles_of(policy: &Policy) -> Option<Vec<Handle>> {
    let pool = Pool::new(PoolConfig {
        buffers: 256,
        buffer_size: 2048,
    });
    let env = pool.map(|pool| policy.env(None, &pool));
    let tree = Tree::build(policy.tree.clone(), &env.ok()?).ok()?;
    let classes = tree.classes();
    let handles = classes.iter().flat_map(|class| [class.class, class.qdisc]);
    Some(handles.filter(|handle| *handle != Handle::NONE).collect())
}
