//! Names of filters, and operations on them, as requests have them.

/// Name of a filter, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterKey {
    /// The chain.
    pub chain: u32,
    /// The priority; 0: all of the chain's.
    pub prio: u16,
    /// The handle; 0: all of the priority's.
    pub handle: u32,
}

/// Operation on a filter: `tc filter add`, `replace` and `change`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterOp {
    /// It is new.
    Add,
    /// It takes the place of one of its handle, if there is one.
    Replace,
    /// It takes the place of one of its handle, which there must be.
    Change,
    /// It is new, and one of a list that was written down: it may match what another `flower` of
    /// its priority does, as one that was changed may. The first one decides.
    Restore,
}

/// Which filters are meant, and what they must be.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilterSelector<'a> {
    /// Name that they are called by.
    pub key: FilterKey,
    /// The priority's protocol; 0: any.
    pub protocol: u16,
    /// The priority's kind; `None`: any.
    pub kind: Option<&'a str>,
}

impl From<FilterKey> for FilterSelector<'_> {
    fn from(key: FilterKey) -> Self {
        FilterSelector {
            key,
            ..FilterSelector::default()
        }
    }
}
