//! The subjects of expectations: one that does not exist is a mistake, told before the run.

use softnet::mem::{Pool, PoolConfig};
use softnet_tc::{Handle, Tree};

use super::Options;
use super::policy::Policy;
use crate::config::{Expectation, nearest};
use crate::failure::{Exit, Failure};

/// Refuses expectations of classes and flows that do not exist.
pub(super) fn check(
    expected: &[Expectation],
    options: &Options,
    policy: &Policy,
) -> Result<(), Failure> {
    let pool = Pool::new(PoolConfig {
        buffers: 256,
        buffer_size: 2048,
    });
    let env = pool.map(|pool| policy.env(None, &pool));
    let Some(Ok(tree)) = env.ok().map(|env| Tree::build(policy.tree.clone(), &env)) else {
        // The run says what is wrong with it.
        return Ok(());
    };
    let classes = tree.classes();
    let handles = classes.iter().flat_map(|class| [class.class, class.qdisc]);
    let handles: Vec<Handle> = handles.filter(|handle| *handle != Handle::NONE).collect();
    let port = options.port.as_ref().or(options.dev.as_ref());
    let mut names = vec!["root".to_owned()];
    names.extend(port.cloned());
    names.extend(options.generate.iter().map(|of| of.shown_name().to_owned()));
    for subject in expected.iter().map(|of| of.subject.as_str()) {
        let handle = subject.parse::<Handle>().ok();
        let is_known = handle.is_some_and(|handle| handles.contains(&handle));
        if is_known || names.iter().any(|name| name == subject) {
            continue;
        }
        let known: Vec<String> = handles.iter().map(Handle::to_string).collect();
        let known: Vec<&str> = names.iter().chain(&known).map(String::as_str).collect();
        let near = nearest(subject, &known);
        let near = near.map_or(String::new(), |near| format!("; is {near:?} meant?"));
        return Err(Failure::new(
            Exit::Config,
            format!(
                "expectation of {subject:?}: column 1: there is no class and no flow {subject:?}; \
                 flows have names by name={near}"
            ),
        ));
    }
    Ok(())
}
