//! Why a filter is refused, with the kernel's text where it has one.

use super::super::Handle;

/// Why a filter cannot be as it is asked to be. Where the kernel has a text for it, the message
/// has that, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The filter leads to a class of another qdisc.
    #[error("{class} is not a class of {parent}")]
    ForeignClass {
        /// The qdisc with the filter.
        parent: Handle,
        /// Where the filter leads.
        class: Handle,
    },
    /// The kernel keeps chains' numbers in 28 bits (`EINVAL`).
    #[error("chain {0}: Specified chain index exceeds upper limit; use 0 to 268435455")]
    Chain(u32),
    /// All filters of a priority are of one kind (`EINVAL`).
    #[error(
        "prio {prio}: Specified filter kind does not match existing one, which is {kind}; \
         choose another prio"
    )]
    Kind {
        /// The priority.
        prio: u16,
        /// What its filters are.
        kind: &'static str,
    },
    /// All filters of a priority are for one protocol (`EINVAL`).
    #[error("prio {0}: Protocol mismatch for filter with specified priority; choose another prio")]
    Protocol(u16),
    /// One of this handle, or one that matches the same (`EEXIST`).
    #[error("prio {0}: Filter already exists; replace or delete it, or choose another prio")]
    Exists(u16),
    /// Nothing to change (`ENOENT`).
    #[error(
        "there is no such filter to change: Need both RTM_NEWTFILTER and NLM_F_CREATE to create a \
         new filter"
    )]
    Create,
    /// Nothing to delete (`ENOENT`).
    #[error("Filter with specified priority/protocol not found")]
    NoPrio,
    /// Nothing to delete in the priority (`ENOENT`).
    #[error("Specified filter handle not found")]
    Missing,
    /// All priorities that are chosen from are in use (`ENOSPC`).
    #[error("Lowest ID from auto-alloc range already in use; give the filter a prio")]
    NoPriority,
    /// Each priority with `u32` filters has a hash table, of 2047 (`ENOSPC`).
    #[error("all 2047 hash tables of u32 are in use; put filters of one protocol into one prio")]
    NoTable,
    /// The kind has no such handle, or none left (`EINVAL`, `ENOSPC`).
    #[error("0x{handle:x} is not a handle that a {kind} filter of prio {prio} can have")]
    Handle {
        /// The handle.
        handle: u32,
        /// The kind of filter.
        kind: &'static str,
        /// Its priority.
        prio: u16,
    },
    /// A `u32` handle names another table than that of its priority (`EINVAL`).
    #[error("0x{0:x}: Handle specified hash table address mismatch; leave the table out")]
    Table(u32),
    /// All `fw` filters of a priority have one mask (`EINVAL`).
    #[error("prio {prio}: its fw filters have the mask 0x{mask:x}; choose another prio")]
    Mask {
        /// The priority.
        prio: u16,
        /// Their mask.
        mask: u32,
    },
    /// The offset of a `u32` key.
    #[error("a u32 key cannot be at {0}; offsets are multiples of 4 from -16 to 65532")]
    Offset(i32),
}
