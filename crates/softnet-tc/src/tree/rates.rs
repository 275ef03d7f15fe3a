//! Rates of qdiscs and classes that are estimated.

use softnet::qdisc::QdiscStats;
use softnet::time::Time;

use super::instances::DeviceTree;
use crate::account::{Rate, Sample};
use crate::handle::Handle;

impl DeviceTree {
    /// When to call [`sample_rates`](DeviceTree::sample_rates) next; `None`: nothing is estimated.
    pub fn rates_due(&self) -> Option<Time> {
        self.estimators.due()
    }

    /// Samples the counters of what is estimated and due. `queues` as for
    /// [`classes`](DeviceTree::classes). A rate counts from the first call after its estimator was
    /// added.
    pub fn sample_rates(&mut self, now: Time, queues: &[QdiscStats]) {
        let mut estimators = std::mem::take(&mut self.estimators);
        estimators.sample(now, |name| self.sent(name, queues));
        self.estimators = estimators;
    }

    /// The estimated rate of a qdisc or class, if it is estimated.
    pub fn rate(&self, name: Handle) -> Option<Rate> {
        self.estimators.rate(name)
    }

    /// Bytes and packets that a qdisc or class has sent.
    fn sent(&self, name: Handle, queues: &[QdiscStats]) -> Option<Sample> {
        let class = match name.minor() {
            0 => self.spec.node(name)?.parent,
            _ => name,
        };
        let stats = if class == Handle::ROOT {
            queues.iter().copied().sum()
        } else if let Some(stats) = self.class_stats(class) {
            stats
        } else {
            *queues.get(usize::from(class.minor()).checked_sub(1)?)?
        };
        Some(Sample {
            bytes: stats.bytes,
            packets: stats.packets,
        })
    }
}
