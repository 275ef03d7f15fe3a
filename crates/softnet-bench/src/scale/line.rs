//! One cache line: who has it, and when it comes to whom. A line is written by one core at a time
//! or read by several (the modified and shared states of MESI).
//!
//! Requests are granted in the order in which they come, one transfer after the other. A core
//! that had the line may use it until the next one's request reaches it.

use super::machine::Time;

/// By its place in the machine.
pub(super) type LineId = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    /// To write it.
    Own,
}

/// Access that one core has, or has been promised.
#[derive(Debug, Clone, Copy)]
struct Tenure {
    access: Access,
    from: Time,
    until: Time,
}

const NEVER: Time = Time::MAX;

#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) value: u64,
    /// By core.
    tenures: Vec<Option<Tenure>>,
    /// Cores whose tenure has no end yet.
    holders: Vec<usize>,
    /// When the last of the transfers ends.
    arrived: Time,
}

impl Line {
    /// When the core has the line, if it needs no transfer.
    pub(super) fn has(&self, core: usize, access: Access, now: Time) -> Option<Time> {
        let tenure = self.tenures.get(core).copied().flatten()?;
        let enough = access == Access::Load || tenure.access == Access::Own;
        // Its own store may have asked for it: then it comes.
        (enough && now < tenure.until).then_some(tenure.from.max(now))
    }

    /// True if the core may read it.
    pub(super) fn is_shared_by(&self, core: usize) -> bool {
        let tenure = self.tenures.get(core).copied().flatten();
        tenure.is_some_and(|tenure| tenure.until == NEVER)
    }

    /// Another core that has it.
    pub(super) fn other_holder(&self, core: usize) -> Option<usize> {
        self.holders.iter().copied().find(|holder| *holder != core)
    }

    pub(super) fn arrived(&self) -> Time {
        self.arrived
    }

    /// Gives the line to the core: the others have it until it `leaves`.
    pub(super) fn grant(&mut self, core: usize, access: Access, leaves: Time, arrives: Time) {
        let Line {
            tenures, holders, ..
        } = self;
        let owner = holders.first().and_then(|first| tenures[*first].as_mut());
        let owner = owner.filter(|tenure| tenure.access == Access::Own);
        if owner.is_some() || access == Access::Own {
            self.arrived = arrives;
        }
        match access {
            // Who could write it can still read it.
            Access::Load => owner
                .into_iter()
                .for_each(|owner| owner.access = Access::Load),
            Access::Own => {
                for holder in holders.drain(..) {
                    if let Some(tenure) = &mut tenures[holder] {
                        tenure.until = leaves;
                    }
                }
            }
        }
        if tenures.len() <= core {
            tenures.resize(core + 1, None);
        }
        tenures[core] = Some(Tenure {
            access,
            from: arrives,
            until: NEVER,
        });
        holders.push(core);
    }
}
