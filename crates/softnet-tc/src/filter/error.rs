//! Why a filter is refused, with the kernel's text where it has one.

use crate::handle::Handle;

/// Why a filter cannot be as it is asked to be. Where the kernel has a text for it, the message
/// has that, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no qdisc to give it to (`EINVAL`).
    #[error("Parent Qdisc doesn't exists: there is no qdisc {0}")]
    NoParent(Handle),
    /// The qdisc is of a kind without classes (`EINVAL`).
    #[error("Qdisc not classful: {0} has no filters; give them to a qdisc with classes")]
    NotClassful(Handle),
    /// The qdisc has classes, but no filters (`EOPNOTSUPP`).
    #[error("Class doesn't support blocks: {0} has no filters; give them to the qdisc below")]
    NoBlocks(Handle),
    /// There is no class to give it to (`ENOENT`).
    #[error("Specified class doesn't exist: there is no class {0}")]
    NoClass(Handle),
    /// The class's qdisc has filters, but the class has none (`EINVAL`).
    #[error("{text}class {class} has no filters of its own; give them to its qdisc")]
    NotOfClasses {
        /// The kernel's text, for kinds that have one.
        text: &'static str,
        /// The class.
        class: Handle,
    },
    /// The qdisc has no filters for such packets (`EINVAL`).
    #[error("there are no filters at that hook; use `ingress`, or with clsact `egress`")]
    NoHook,
    /// No hook has the block (`EINVAL`).
    #[error("Block of given index was not found: there is no block {0}")]
    UnknownBlock(u32),
    /// Several links may share the filters (`EOPNOTSUPP`).
    #[error("This filter block is shared. Please use the block index to manipulate the filters")]
    Shared,
    /// The kernel keeps chains' numbers in 28 bits (`EINVAL`).
    #[error("Specified chain index exceeds upper limit: {0}; use 0 to 268435455")]
    Chain(u32),
    /// There is a chain of this number (`EEXIST`).
    #[error("Filter chain already exists: {0}")]
    ChainExists(u32),
    /// The filters of the chain are of its template's kind (`EINVAL`).
    #[error("Chain template is set to a different filter kind: use flower, or another chain")]
    TemplateKind,
    /// The filter looks at bits that the chain's template does not look at (`EINVAL`).
    #[error("cls_flower: Mask does not fit the template")]
    Template,
    /// All filters of a priority are of one kind (`EINVAL`).
    #[error(
        "Specified filter kind does not match existing one: prio {prio} is {kind}; choose another \
         prio"
    )]
    Kind {
        /// The priority.
        prio: u16,
        /// Kind and protocol of its filters.
        kind: &'static str,
    },
    /// All filters of a priority are for one protocol (`EINVAL`).
    #[error("Protocol mismatch for filter with specified priority: {0}; choose another prio")]
    Protocol(u16),
    /// One of this handle, or one that matches the same (`EEXIST`).
    #[error("Filter already exists: prio {0}; replace or delete it, or choose another prio")]
    Exists(u16),
    /// Nothing to change (`ENOENT`).
    #[error(
        "Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter: there is none to change"
    )]
    Create,
    /// Only one that is added may have its priority chosen (`ENOENT`).
    #[error("Invalid filter command with priority of zero")]
    ZeroPrio,
    /// All filters of a chain are deleted, or those of one priority (`ENOENT`).
    #[error("Cannot flush filters with protocol, handle or kind set")]
    Flush,
    /// Nothing to delete (`ENOENT`).
    #[error("Cannot find specified filter chain")]
    NoChain,
    /// Nothing to delete in the chain (`ENOENT`).
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
        /// Priority.
        prio: u16,
    },
    /// A `u32` handle names another table than that of its priority (`EINVAL`).
    #[error("cls_u32: Handle specified hash table address mismatch: 0x{0:x}; leave the table out")]
    Table(u32),
    /// There is no hash table of this handle for a `u32` filter to lead to (`EINVAL`).
    #[error("cls_u32: Link hash table not found: {0:x}; add the table before")]
    NoLink(u32),
    /// The table that a priority starts with (`EINVAL`).
    #[error("cls_u32: Not linking to root node; link to a table that was added with a divisor")]
    LinkToRoot,
    /// The table that a priority starts with goes with it (`EINVAL`).
    #[error("cls_u32: Not allowed to delete root node; delete the priority")]
    RootTable,
    /// `u32` filters lead to the table (`EBUSY`).
    #[error("cls_u32: Can not delete in-use filter: filters lead to the table")]
    LinkedTable,
    /// Buckets of a hash table (`EINVAL`).
    #[error("cls_u32: Divisor is not a power of 2 up to 256: {0}")]
    Divisor(u16),
    /// All `fw` filters of a priority have one mask (`EINVAL`).
    #[error("prio {prio}: its fw filters have the mask 0x{mask:x}; choose another prio")]
    Mask {
        /// The priority.
        prio: u16,
        /// Their mask.
        mask: u32,
    },
    /// Expressions of `basic` beyond what there may be (`EINVAL`).
    #[error("a filter has 4096 expressions at most, in 32 groups within each other")]
    Expressions,
    /// The offset of a `u32` key.
    #[error("a u32 key cannot be at {0}; offsets are from -16 to 65532")]
    Offset(i32),
}

impl FilterError {
    /// The kernel's number for it (`errno.h`).
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EBUSY: i32 = 16;
        const EEXIST: i32 = 17;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const EOPNOTSUPP: i32 = 95;
        match self {
            FilterError::NoClass(_)
            | FilterError::Create
            | FilterError::ZeroPrio
            | FilterError::Flush
            | FilterError::NoChain
            | FilterError::NoPrio
            | FilterError::Missing => ENOENT,
            FilterError::Exists(_) | FilterError::ChainExists(_) => EEXIST,
            FilterError::LinkedTable => EBUSY,
            FilterError::NoPriority | FilterError::NoTable => ENOSPC,
            FilterError::NoBlocks(_) | FilterError::Shared => EOPNOTSUPP,
            FilterError::NoParent(_)
            | FilterError::NoHook
            | FilterError::UnknownBlock(_)
            | FilterError::NotClassful(_)
            | FilterError::NotOfClasses { .. }
            | FilterError::Chain(_)
            | FilterError::TemplateKind
            | FilterError::Template
            | FilterError::Kind { .. }
            | FilterError::Protocol(_)
            | FilterError::Handle { .. }
            | FilterError::Table(_)
            | FilterError::NoLink(_)
            | FilterError::LinkToRoot
            | FilterError::RootTable
            | FilterError::Divisor(_)
            | FilterError::Mask { .. }
            | FilterError::Expressions
            | FilterError::Offset(_) => EINVAL,
        }
    }
}
