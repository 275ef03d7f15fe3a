//! Lists of a tin's flows, linked through the flows by their places, both ways: a flow goes from
//! any place of one list to the end of another.

/// No flow.
pub(super) const NONE: u16 = u16::MAX;

/// The links of a flow. It is in one list at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    next: u16,
    previous: u16,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            next: NONE,
            previous: NONE,
        }
    }
}

/// Something with links.
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// A first-in, first-out list of flows.
#[derive(Debug)]
pub(super) struct FlowList {
    first: u16,
    last: u16,
    len: u32,
}

impl Default for FlowList {
    fn default() -> FlowList {
        FlowList {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl FlowList {
    /// Number of flows.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The flow behind another one of this list.
    pub(super) fn after<F: Linked>(&self, flows: &mut [F], index: u16) -> Option<u16> {
        let next = flows[usize::from(index)].links().next;
        (next != NONE).then_some(next)
    }

    /// The first flow.
    #[inline]
    pub(super) fn first(&self) -> Option<u16> {
        (self.first != NONE).then_some(self.first)
    }

    /// Adds a flow that is in no list.
    #[inline]
    pub(super) fn push<F: Linked>(&mut self, flows: &mut [F], index: u16) {
        *flows[usize::from(index)].links() = Links {
            next: NONE,
            previous: self.last,
        };
        match self.last {
            NONE => self.first = index,
            last => flows[usize::from(last)].links().next = index,
        }
        self.last = index;
        self.len += 1;
    }

    /// Takes out a flow that is in this list.
    #[inline]
    pub(super) fn remove<F: Linked>(&mut self, flows: &mut [F], index: u16) {
        let Links { next, previous } = std::mem::take(flows[usize::from(index)].links());
        match previous {
            NONE => self.first = next,
            previous => flows[usize::from(previous)].links().next = next,
        }
        match next {
            NONE => self.last = previous,
            next => flows[usize::from(next)].links().previous = previous,
        }
        self.len -= 1;
    }
}
