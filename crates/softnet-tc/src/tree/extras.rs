//! What a qdisc or class of any kind may be given: a [size table](SizeTable), and a [rate
//! estimator](EstimatorSpec). In the tree as configuration, and on one with its instances. And the
//! limit that the queues of a device share with those of others.

use std::sync::Arc;

use softnet::qdisc::QdiscStats;
use softnet::time::Time;

use super::instances::DeviceTree;
use super::live::{Live, Queues};
use super::spec::{TreeError, TreeSpec};
use crate::account::{Accounted, EstimatorSpec, Rate, Sample, SizeTable};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, QdiscSpec, SpecError};
use crate::rate::RateGroup;

impl TreeSpec {
    /// Checks that what is attached to `parent` may have a size table. A qdisc with a child at each
    /// queue may have one that is not used: packets do not pass it.
    ///
    /// # Errors
    /// If it is neither at the root nor at a transmit queue.
    pub fn check_stab(&self, parent: Handle) -> Result<(), SpecError> {
        let above = self.node(parent.qdisc()).map(|node| &node.qdisc);
        if parent == Handle::ROOT || above.is_some_and(QdiscSpec::is_per_queue) {
            return Ok(());
        }
        Err(TreeError::StabBelow.into())
    }

    /// Gives a qdisc a size table, or takes it away.
    ///
    /// # Errors
    /// If there is no such qdisc, or it is not at a root.
    pub fn set_stab(&mut self, handle: Handle, table: Option<SizeTable>) -> Result<(), SpecError> {
        let parent = self.existing(handle)?.parent;
        if table.is_some() {
            self.check_stab(parent)?;
        }
        self.existing_mut(handle)?.stab = table;
        Ok(())
    }

    /// How the rate of a qdisc or class is estimated, if it is.
    pub fn estimator(&self, name: Handle) -> Option<EstimatorSpec> {
        self.estimators.get(&name).copied()
    }

    /// Lets the rate of a qdisc, or of a class that was added, be estimated. It goes with it.
    ///
    /// # Errors
    /// If there is no such qdisc or class, or no packet passes it.
    pub fn set_estimator(&mut self, name: Handle, spec: EstimatorSpec) -> Result<(), SpecError> {
        if name.minor() == 0 {
            if self.existing(name)?.qdisc.is_per_queue() {
                return Err(TreeError::NoEstimator.into());
            }
        } else if self.class_node(name).is_none() {
            return Err(TreeError::NoClass(name).into());
        }
        self.estimators.insert(name, spec);
        Ok(())
    }
}

impl DeviceTree {
    /// Gives the root of a queue what the device's group says, if it is in one.
    pub(crate) fn limit(&self, root: &mut AnyQdisc) {
        if let Some(group) = &self.env.group {
            root.set_limit(&mut Some(Accounted::limited(group.join())));
        }
    }

    /// Starts the estimators of a new qdisc and its classes.
    pub(crate) fn start_estimators(&mut self, handle: Handle) {
        // One with this name may have been replaced.
        self.estimators.stop(handle);
        let names = handle..=handle.class(u16::MAX);
        for (&name, &spec) in self.spec.estimators.range(names) {
            self.estimators.start(name, spec);
        }
    }

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

    /// What a qdisc or class has sent.
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

impl<Q: Queues> Live<'_, Q> {
    /// What all queues of the device send has a limit that others share from now on, or none.
    /// What is queued stays.
    pub fn set_group(&mut self, group: Option<Arc<RateGroup>>) {
        self.tree.env.group = group;
        for queue in 0..self.tree.queues {
            let group = self.tree.env.group.as_ref();
            let mut fresh = group.map(|group| Accounted::limited(group.join()));
            // Freed when the queue has been given up.
            let mut old = None;
            self.queues
                .with(queue, &mut |root, _| old = root.set_limit(&mut fresh));
            drop((old, fresh));
        }
    }

    /// Gives a qdisc a size table, or takes it away; see [`TreeSpec::set_stab`]. What is queued
    /// counts as before until it has left.
    ///
    /// # Errors
    /// As [`TreeSpec::set_stab`].
    pub fn set_stab(&mut self, handle: Handle, table: Option<SizeTable>) -> Result<(), SpecError> {
        self.tree.spec.set_stab(handle, table.clone())?;
        let node = self.tree.spec.existing(handle)?;
        let is_passed = node.qdisc != QdiscSpec::Noqueue && !node.qdisc.is_per_queue();
        let (queues, path) = self.tree.locate(node.parent)?;
        if is_passed && path.is_empty() {
            let fresh = |_| table.clone().map(Accounted::new);
            let fresh: Vec<_> = queues.clone().map(fresh).collect();
            for (queue, mut fresh) in queues.zip(fresh) {
                // Freed when the queue has been given up.
                let mut old = None;
                self.queues
                    .with(queue, &mut |root, _| old = root.set_table(&mut fresh));
            }
        }
        Ok(())
    }

    /// Lets a rate be estimated; see [`TreeSpec::set_estimator`]. One that is estimated goes on
    /// from what it was.
    ///
    /// # Errors
    /// As [`TreeSpec::set_estimator`].
    pub fn set_estimator(&mut self, name: Handle, spec: EstimatorSpec) -> Result<(), SpecError> {
        self.tree.spec.set_estimator(name, spec)?;
        self.tree.estimators.start(name, spec);
        Ok(())
    }
}
