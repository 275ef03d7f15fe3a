//! The qdisc that comes by itself.

use super::kind::{LinkDefaults, QdiscKind, QdiscSpec};
use super::spec::QdiscEnv;

/// The kind of the qdisc at a transmit queue to which none is attached, as the kernel's
/// `net.core.default_qdisc`. Without a choice it is `pfifo_fast`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultQdisc(Option<&'static QdiscKind>);

impl PartialEq for DefaultQdisc {
    fn eq(&self, other: &DefaultQdisc) -> bool {
        self.name() == other.name()
    }
}

impl Eq for DefaultQdisc {}

impl DefaultQdisc {
    /// The kind of this name. `None`: it has classes, needs options or cannot be at one queue, or
    /// there is no such kind.
    pub fn find(name: &str) -> Option<DefaultQdisc> {
        let kind = QdiscKind::find(name)?;
        let qdisc = (kind.default)(&LinkDefaults::default());
        let has_classes = qdisc.classes() > 0 || qdisc.adds_classes();
        let is_whole = !has_classes && !qdisc.is_root_only() && qdisc.check().is_ok();
        is_whole.then_some(DefaultQdisc(Some(kind)))
    }

    /// Name, as in tc.
    pub fn name(self) -> &'static str {
        self.0.map_or("pfifo_fast", |kind| kind.name)
    }
}

impl QdiscEnv {
    /// The qdisc at a transmit queue to which none is attached.
    pub fn default_spec(&self) -> QdiscSpec {
        let link = LinkDefaults {
            mtu: self.mtu,
            tx_queue_len: self.txqueuelen,
            queues: 1,
        };
        match self.default_qdisc.0 {
            Some(kind) => (kind.default)(&link),
            None => QdiscSpec::PfifoFast {
                limit: self.txqueuelen,
            },
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::testing::bench::AllQueues;
    use crate::testing::handle;
    use crate::{AnyQdisc, DeviceTree, Handle, TreeSpec};
    use softnet::qdisc::Cx;
    use softnet::testing::pool;

    #[test]
    fn kinds_without_classes_and_options() {
        for name in [
            "pfifo_fast",
            "pfifo",
            "bfifo",
            "fq_codel",
            "fq",
            "codel",
            "sfq",
            "cake",
        ] {
            assert_eq!(DefaultQdisc::find(name).map(DefaultQdisc::name), Some(name));
        }
        for name in [
            "noqueue", "prio", "htb", "drr", "tbf", "red", "netem", "multiq", "mq", "mqprio",
            "cake_mq", "choke", "",
        ] {
            assert_eq!(DefaultQdisc::find(name), None, "{name}");
        }
        assert_eq!(
            DefaultQdisc::find("pfifo_fast"),
            Some(DefaultQdisc::default())
        );
    }

    /// It is at each queue from the start, and comes back when what was attached goes.
    #[test]
    fn at_queues_without_another() {
        let pool = pool(4);
        let env = QdiscEnv {
            default_qdisc: DefaultQdisc::find("fq_codel").unwrap(),
            ..QdiscEnv::new(&pool)
        };
        let is_default = |qdisc: &AnyQdisc| matches!(qdisc, AnyQdisc::FqCodel(_));
        let spec = QdiscSpec::FqCodel(Default::default());

        let (mut tree, roots) = DeviceTree::new(TreeSpec::new(), 1, &env).unwrap();
        let mut queues = roots.instances;
        assert!(queues.iter().all(is_default));
        assert_eq!(tree.default_at(Handle::ROOT), Some(spec.clone()));
        assert!(tree.xstats_at(Handle::NONE, Handle::ROOT).is_some());
        let mut cx = Cx::new(&pool);
        let pfifo = QdiscSpec::Pfifo { limit: 1 };
        let mut live = tree.on(AllQueues(&mut queues, &mut cx));
        live.add(Handle::ROOT, handle("1:"), pfifo.clone()).unwrap();
        assert!(!queues.iter().any(is_default));
        assert!(tree.xstats_at(Handle::NONE, Handle::ROOT).is_none());
        let mut live = tree.on(AllQueues(&mut queues, &mut cx));
        live.delete(handle("1:")).unwrap();
        assert!(queues.iter().all(is_default));
        assert!(tree.xstats_at(Handle::NONE, Handle::ROOT).is_some());
        // Only `pfifo_fast` follows the length of the device's queue.
        let mut live = tree.on(AllQueues(&mut queues, &mut cx));
        live.set_tx_queue_len(7).unwrap();

        let (mut tree, roots) = DeviceTree::new(TreeSpec::new(), 2, &env).unwrap();
        let mut queues = roots.instances;
        assert!(queues.iter().all(is_default));
        assert_eq!(tree.default_at(Handle::ROOT), Some(QdiscSpec::Mq));
        assert!(tree.xstats_at(Handle::NONE, Handle::new(0, 2)).is_some());
        let class = handle("1:2");
        let mut live = tree.on(AllQueues(&mut queues, &mut cx));
        live.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
        live.add(class, handle("2:"), pfifo).unwrap();
        assert_eq!(
            queues.iter().map(is_default).collect::<Vec<_>>(),
            [true, false]
        );
        assert!(tree.xstats_at(Handle::NONE, class).is_none());
        let mut live = tree.on(AllQueues(&mut queues, &mut cx));
        live.delete(handle("2:")).unwrap();
        assert!(queues.iter().all(is_default));
        assert_eq!(tree.default_at(class), Some(spec));
        assert!(tree.xstats_at(Handle::NONE, class).is_some());
    }
}
