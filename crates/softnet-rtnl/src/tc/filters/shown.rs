//! Filters as messages show them.

use softnet_tc::{FilterSpec, FilterStats};

use super::home::Home;
use super::kinds;
use crate::nl::Message;
use crate::nl::headers::TcMsg;
use crate::tc::actions::{self, ShownAt};
use crate::tc::{TCA_CHAIN, TCA_KIND};

/// Shown part of a filter's priority.
#[derive(Clone, Copy, Debug)]
pub(in crate::tc) enum Part<'a> {
    /// The priority itself.
    Priority,
    /// The filter, and what it has counted.
    Filter(&'a FilterStats),
}

/// A part of a priority, as it was at a moment (`tcf_fill_node`).
#[derive(Clone, Copy, Debug)]
pub(in crate::tc) struct Shown<'a> {
    home: Home,
    spec: &'a FilterSpec,
    part: Part<'a>,
    at: ShownAt,
}

impl<'a> Shown<'a> {
    /// As it is at `home`.
    pub(in crate::tc) fn new(
        home: Home,
        spec: &'a FilterSpec,
        part: Part<'a>,
        at: ShownAt,
    ) -> Shown<'a> {
        Shown {
            home,
            spec,
            part,
            at,
        }
    }

    pub(super) fn header(&self) -> TcMsg {
        let spec = self.spec;
        let (ifindex, parent) = self.home.names();
        TcMsg {
            ifindex,
            parent,
            handle: match self.part {
                Part::Priority => 0,
                Part::Filter(_) => spec.handle,
            },
            info: u32::from(spec.prio) << 16 | u32::from(spec.protocol.to_be()),
            ..TcMsg::default()
        }
    }

    pub(super) fn put(&self, out: &mut Message<'_>) {
        out.put_str(TCA_KIND, self.spec.kind.name());
        out.put_u32(TCA_CHAIN, self.spec.chain);
        match self.part {
            Part::Priority => {}
            Part::Filter(stats) => {
                kinds::dump(self.spec, stats, &self.at, out);
                actions::put_old_stats(&self.spec.actions, out);
            }
        }
    }
}
