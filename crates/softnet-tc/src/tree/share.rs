//! Rates that are shares of a link's speed. A tree has both: the share, and what it comes to at the
//! speed that was told last.

use super::error::TreeError;
use super::spec::TreeSpec;
use crate::handle::Handle;
use crate::qdisc::{QdiscKind, SpecError, SpecOption};
use crate::units::Share;

impl TreeSpec {
    /// Has an option of a qdisc, or of a class that was added, be a share of the link's speed: a
    /// rate. It goes with that qdisc or class, and with other parameters of it.
    pub fn set_share(&mut self, name: Handle, option: &'static str, share: Share) {
        self.shares.insert((name, option), share);
    }

    /// The options of a qdisc or class that are shares of the link's speed.
    pub fn shares_of(&self, name: Handle) -> impl Iterator<Item = (&'static str, Share)> {
        let from = self.shares.range((name, "")..);
        from.take_while(move |((of, _), _)| *of == name)
            .map(|(&(_, option), &share)| (option, share))
    }

    /// True if some rate is a share of the link's speed.
    pub fn has_shares(&self) -> bool {
        !self.shares.is_empty()
    }

    /// The tree with its shares of a speed, in bytes per second, as rates.
    ///
    /// # Errors
    /// If there is a share and the speed is not known, or a qdisc or class cannot have its rate.
    pub fn at_speed(&self, speed: Option<u64>) -> Result<TreeSpec, SpecError> {
        let mut tree = self.clone();
        for (&(name, option), share) in &self.shares {
            tree.set_rate(name, option, share.of(speed.ok_or(TreeError::NoSpeed)?))?;
        }
        // Once all are set: some are bounds of others.
        for (name, _) in self.shares.keys() {
            let Some(node) = tree.nodes.get(&name.qdisc()) else {
                continue;
            };
            match tree.classes.get(name) {
                Some(class) => class.spec.check_for(&node.qdisc)?,
                None => node.qdisc.check()?,
            }
        }
        Ok(tree)
    }

    fn set_rate(&mut self, name: Handle, option: &str, rate: u64) -> Result<(), SpecError> {
        let Some(node) = self.nodes.get_mut(&name.qdisc()) else {
            return Ok(());
        };
        let kind = node.qdisc.kind();
        match self.classes.get_mut(&name) {
            Some(class) => match node.qdisc.added_classes() {
                Some(of) => set(kind, of.options, &mut class.spec, option, rate),
                None => Ok(()),
            },
            None => match QdiscKind::find(kind) {
                Some(of) => set(kind, of.options, &mut node.qdisc, option, rate),
                None => Ok(()),
            },
        }
    }

    /// The rates of a qdisc or class are those that it has, and shares no more.
    pub(super) fn forget_shares(&mut self, name: Handle) {
        let options: Vec<&'static str> = self.shares_of(name).map(|(option, _)| option).collect();
        for option in options {
            self.shares.remove(&(name, option));
        }
    }
}

/// Sets an option that is a rate.
fn set<S>(
    kind: &'static str,
    options: &[SpecOption<S>],
    spec: &mut S,
    name: &str,
    rate: u64,
) -> Result<(), SpecError> {
    let Some(option) = options.iter().find(|option| option.name == name) else {
        return Ok(());
    };
    let Some(field) = (option.field)(spec) else {
        return Ok(());
    };
    field.set(rate).map_err(|most| {
        let reason = format!("can be at most {most} bytes per second, not {rate}");
        SpecError::parameter(kind, option.name, reason)
    })
}
