//! The tree of `htb` that is measured: classes with equal shares of a rate that is never reached,
//! below one class with all of it. As many levels as DPDK's scheduler has: pipes and a subport.

use softnet_tc::{ClassSpec, Handle, HtbClassSpec, HtbSpec, QdiscSpec, SpecError, TreeSpec};

/// Numbers of classes.
pub(crate) const CLASSES: [u16; 2] = [10, 1024];
/// Bytes per second of all classes together, and what all, or one that borrows, may send at once.
pub(crate) const RATE: u64 = 12_500_000_000;
const BURST: u64 = 100_000_000;
/// The qdisc, and the class above the others.
const HTB: Handle = Handle::new(1, 0);
const ABOVE: Handle = HTB.class(0xFFFE);

/// Bytes per second of a class.
fn share(classes: u16) -> u64 {
    RATE / u64::from(classes.max(1))
}

/// The priority with which a packet goes to the class of this index.
pub(crate) fn priority(index: u16) -> u32 {
    HTB.class(index + 1).raw()
}

/// The tree with so many classes that have packets.
pub(crate) fn spec(classes: u16) -> Result<QdiscSpec, SpecError> {
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HTB, QdiscSpec::Htb(HtbSpec::default()))?;
    let above = HtbClassSpec {
        burst: BURST,
        cburst: BURST,
        ..HtbClassSpec::new(RATE)
    };
    tree.add_class(HTB, ABOVE, ClassSpec::Htb(above))?;
    for minor in 1..=classes {
        let class = HtbClassSpec {
            ceil: RATE,
            cburst: BURST,
            ..HtbClassSpec::new(share(classes))
        };
        tree.add_class(ABOVE, HTB.class(minor), ClassSpec::Htb(class))?;
    }
    Ok(QdiscSpec::Tree(tree))
}
