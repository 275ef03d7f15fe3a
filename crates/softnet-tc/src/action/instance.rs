//! An action in use: parameters, and what all share that use it.
//!
//! Parameters never change; other ones make another [`Action`], which shares the rest with the one
//! before it. Filters are given it as they are given others: their queue's owner swaps them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use softnet::qdisc::WireSize;
use softnet::stats::Published;
use softnet::time::Time;

use super::police::Gates;
use super::{ActionKind, ActionSpec};
use crate::account::{EstimatorSpec, Rate, RateEstimator, Sample};

/// An action, which filters may share. A clone is the same one.
#[derive(Clone)]
pub struct Action(Arc<Instance>);

/// A reference to an action that does not keep it.
#[derive(Clone, Debug)]
pub(super) struct WeakAction(Weak<Instance>);

struct Instance {
    spec: ActionSpec,
    gates: Arc<Gates>,
    state: Arc<State>,
}

/// The part of an action that its parameters do not change.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Number among the actions of the kind; 0: none yet.
    pub(super) index: AtomicU32,
    /// Filters that have it.
    binds: AtomicU32,
    /// Index of the link that `mirred` sends to; 0: none.
    pub(super) link: AtomicU32,
    /// 1 if it is to stay whether filters have it or not.
    pub(super) kept: AtomicU32,
    /// See [`Action::shows_hw_stats`].
    shows_hw_stats: AtomicBool,
    /// Instances of filters that have it.
    users: AtomicU32,
    /// Bytes per second on average, as estimated last.
    average: AtomicU64,
    shared: Mutex<Shared>,
    /// The table's number below which all are in use.
    free_from: OnceLock<Arc<AtomicU32>>,
}

#[derive(Debug, Default)]
struct Shared {
    installed: Time,
    /// Counts of filters that are no more.
    gone: ActionStats,
    /// Number for the next user.
    next: u64,
    users: BTreeMap<u64, Arc<Counts>>,
    estimator: Option<RateEstimator>,
}

impl Shared {
    /// Counts of all filters, of now and before.
    fn stats(&self) -> ActionStats {
        let mut stats = self.gone;
        self.users.values().for_each(|counts| stats.add(&counts.0));
        stats.installed = self.installed;
        stats
    }
}

/// Counts of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionStats {
    /// Wire bytes that it has seen, as they counted when the filters saw the packets first; where
    /// packets arrive, without Ethernet headers.
    pub bytes: u64,
    /// Wire packets.
    pub packets: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets that it could not treat as it should, or above its rate.
    pub overlimits: u64,
    /// The time when it saw its first packet, and its latest; [`Time::ZERO`]: it saw none.
    pub used: [Time; 2],
    /// The time when it was made.
    pub installed: Time,
}

impl ActionStats {
    fn add(&mut self, counts: &Published<{ Tally::COUNTS }>) {
        let counts = counts.get();
        self.bytes = self.bytes.wrapping_add(counts[Tally::BYTES]);
        self.packets = self.packets.wrapping_add(counts[Tally::PACKETS]);
        self.drops = self.drops.wrapping_add(counts[Tally::DROPS]);
        self.overlimits = self.overlimits.wrapping_add(counts[Tally::OVERLIMITS]);
        let [first, last] = [Tally::FIRST, Tally::LAST].map(|at| Time(counts[at]));
        if first != Time::ZERO {
            let before = self.used[0];
            self.used[0] = if before == Time::ZERO {
                first
            } else {
                before.min(first)
            };
            self.used[1] = self.used[1].max(last);
        }
    }
}

/// The counts of an action in one instance of a filter. The owner of the queue writes them.
#[derive(Debug)]
pub(crate) struct Tally {
    state: Arc<State>,
    /// Gates that what it has in advance was drawn from.
    gates: Arc<Gates>,
    number: u64,
    counts: Arc<Counts>,
}

/// In a cache line that no other thread writes to: instances are made one after the other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts(Published<{ Tally::COUNTS }>);

impl Tally {
    pub(super) const BYTES: usize = 0;
    pub(super) const PACKETS: usize = 1;
    pub(super) const DROPS: usize = 2;
    pub(super) const OVERLIMITS: usize = 3;
    const FIRST: usize = 4;
    const LAST: usize = 5;
    /// Two numbers that are the kind's own.
    pub(super) const EXTRA: usize = 6;
    pub(super) const EXTRA_TIME: usize = 7;
    const COUNTS: usize = 8;

    #[inline]
    pub(super) fn add(&self, at: usize, n: u64) {
        self.counts.0.add(at, n);
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        self.counts.0.get_one(at)
    }

    pub(super) fn put(&self, at: usize, n: u64) {
        self.counts.0.put(at, n);
    }

    /// Counts one up, and returns the new number.
    pub(super) fn next(&self, at: usize) -> u64 {
        self.counts.0.add(at, 1);
        self.counts.0.get_one(at)
    }

    #[inline]
    pub(super) fn count(&self, size: WireSize, now: Time) {
        self.counts.0.add(Tally::BYTES, size.bytes);
        self.counts.0.add(Tally::PACKETS, size.packets);
        // Time 0 says that there was none.
        let now = now.nanos().max(1);
        if self.counts.0.get_one(Tally::FIRST) == 0 {
            self.counts.0.put(Tally::FIRST, now);
        }
        self.counts.0.put(Tally::LAST, now);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // Of other kinds that number means something else, and they have no rate.
        self.gates.pour_back(self.get(Tally::EXTRA));
        let mut shared = self.state.lock();
        if let Some(counts) = shared.users.remove(&self.number) {
            shared.gone.add(&counts.0);
        }
        self.state.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number is free.
impl Drop for State {
    fn drop(&mut self) {
        if let Some(free_from) = self.free_from.get() {
            free_from.fetch_min(*self.index.get_mut(), Ordering::Relaxed);
        }
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if several threads may use it at once.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 1
    }

    #[inline]
    pub(super) fn average(&self) -> u64 {
        self.average.load(Ordering::Relaxed)
    }

    /// Lets the rate be estimated. One that is estimated goes on from its average.
    fn estimate(&self, spec: Option<EstimatorSpec>) {
        let mut shared = self.lock();
        shared.estimator = spec.map(|spec| match shared.estimator {
            Some(old) => old.changed(spec),
            None => RateEstimator::new(spec),
        });
        if spec.is_none() {
            self.average.store(0, Ordering::Relaxed);
        }
    }
}

impl Action {
    /// An action of its own, which has no number yet.
    pub fn new(spec: ActionSpec) -> Action {
        let gates = match &spec.kind {
            ActionKind::Police(police) => police.gates(),
            _ => Gates::default(),
        };
        let state = State::default();
        state.index.store(spec.index, Ordering::Relaxed);
        state.estimate(spec.estimator);
        Action(Arc::new(Instance {
            spec,
            gates: Arc::new(gates),
            state: Arc::new(state),
        }))
    }

    /// The same action with other parameters. Statistics go on, and so do a rate's bucket and its
    /// estimate.
    pub(super) fn changed(&self, mut spec: ActionSpec, now: Time) -> Action {
        spec.index = self.0.spec.index;
        if spec.estimator != self.0.spec.estimator {
            self.0.state.estimate(spec.estimator);
        }
        let gates = match (&spec.kind, &self.0.spec.kind) {
            (ActionKind::Police(police), ActionKind::Police(before)) => {
                match police.change(&self.0.gates, before, now) {
                    true => self.0.gates.clone(),
                    false => Arc::new(police.gates()),
                }
            }
            _ => self.0.gates.clone(),
        };
        Action(Arc::new(Instance {
            spec,
            gates,
            state: self.0.state.clone(),
        }))
    }

    /// Parameters of the action. The index is 0 if it was chosen.
    pub fn spec(&self) -> &ActionSpec {
        &self.0.spec
    }

    /// Number among those of its kind; 0: it is in no table.
    pub fn index(&self) -> u32 {
        self.0.state.index.load(Ordering::Relaxed)
    }

    /// Filters that have it.
    pub fn binds(&self) -> u32 {
        self.0.state.binds.load(Ordering::Relaxed)
    }

    /// Filters that have it, and the program that made it to stay.
    pub fn references(&self) -> u32 {
        self.binds() + self.0.state.kept.load(Ordering::Relaxed)
    }

    /// True if drivers were asked what they counted of the action by itself, as the kernel does
    /// for a list of all, and not of one of its filters since then (`used_hw_stats_valid`).
    pub fn shows_hw_stats(&self) -> bool {
        self.0.state.shows_hw_stats.load(Ordering::Relaxed)
    }

    /// Drivers were asked what they counted of the action by itself, or of one of its filters.
    pub fn show_hw_stats(&self, by_itself: bool) {
        let shows = &self.0.state.shows_hw_stats;
        shows.store(by_itself, Ordering::Relaxed);
    }

    /// Index of the link that `mirred` sends to, if there is one.
    pub fn link(&self) -> Option<u32> {
        Some(self.0.state.link.load(Ordering::Relaxed)).filter(|&link| link != 0)
    }

    /// Says which link `mirred` sends to.
    pub fn set_link(&self, link: Option<u32>) {
        let link = link.unwrap_or_default();
        self.0.state.link.store(link, Ordering::Relaxed);
    }

    /// Counters of the action, for all filters that have it, or had it.
    pub fn stats(&self) -> ActionStats {
        self.0.state.lock().stats()
    }

    /// The estimated rate, if it is estimated.
    pub fn rate(&self) -> Option<Rate> {
        self.0
            .state
            .lock()
            .estimator
            .map(|estimator| estimator.rate())
    }

    /// Samples the rate if that is due. Returns when it is due next; `None`: nothing is estimated.
    pub(super) fn sample_rate(&self, now: Time) -> Option<Time> {
        let state = &self.0.state;
        let mut shared = state.lock();
        let mut estimator = shared.estimator?;
        if estimator.due() <= now {
            let ActionStats { bytes, packets, .. } = shared.stats();
            estimator.sample(Sample { bytes, packets }, now);
            shared.estimator = Some(estimator);
            state
                .average
                .store(estimator.rate().bytes, Ordering::Relaxed);
        }
        Some(estimator.due())
    }

    /// True if both are one, with whatever parameters.
    pub fn is_same(&self, other: &Action) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }

    /// True if both are one, and what an instance of a filter drew of its rates in advance counts
    /// for both.
    pub(crate) fn shares_credit(&self, other: &Action) -> bool {
        self.is_same(other) && Arc::ptr_eq(&self.0.gates, &other.0.gates)
    }

    pub(super) fn state(&self) -> &Arc<State> {
        &self.0.state
    }

    pub(super) fn gates(&self) -> &Gates {
        &self.0.gates
    }

    pub(super) fn install(&self, index: u32, free_from: &Arc<AtomicU32>, now: Time) {
        self.0.state.free_from.get_or_init(|| free_from.clone());
        self.0.state.index.store(index, Ordering::Relaxed);
        self.0.state.lock().installed = now;
    }

    pub(super) fn downgrade(&self) -> WeakAction {
        WeakAction(Arc::downgrade(&self.0))
    }

    /// Place for counts of another instance of a filter.
    pub(crate) fn tally(&self) -> Tally {
        let state = self.0.state.clone();
        let counts = Arc::default();
        let mut shared = state.lock();
        let number = shared.next;
        shared.next += 1;
        shared.users.insert(number, Arc::clone(&counts));
        drop(shared);
        state.users.fetch_add(1, Ordering::Relaxed);
        Tally {
            state,
            gates: self.0.gates.clone(),
            number,
            counts,
        }
    }
}

impl WeakAction {
    pub(super) fn get(&self) -> Option<Action> {
        self.0.upgrade().map(Action)
    }
}

/// By parameters.
impl PartialEq for Action {
    fn eq(&self, other: &Action) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}

impl Eq for Action {}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.spec.fmt(f)
    }
}

/// The actions of a filter, in order. None: a packet goes to the filter's class. A clone is of the
/// same filter.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ActionList(Option<Arc<Bound>>);

/// Counts as one filter that has the actions.
#[derive(PartialEq, Eq)]
struct Bound(Box<[Action]>);

impl Drop for Bound {
    fn drop(&mut self) {
        for action in &self.0 {
            action.0.state.binds.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl ActionList {
    /// Actions of a filter (`TCA_ACT_MAX_PRIO`).
    pub const MAX: usize = 32;

    /// These actions; those beyond [`MAX`](ActionList::MAX) are left out.
    pub fn new(actions: impl IntoIterator<Item = Action>) -> ActionList {
        let actions: Box<[Action]> = actions.into_iter().take(ActionList::MAX).collect();
        for action in &actions {
            action.0.state.binds.fetch_add(1, Ordering::Relaxed);
        }
        ActionList((!actions.is_empty()).then(|| Arc::new(Bound(actions))))
    }

    /// The actions.
    pub fn as_slice(&self) -> &[Action] {
        self.0.as_ref().map_or(&[], |bound| &bound.0)
    }

    /// The list with an action of it as it is now; `None`: that is none of it.
    pub(crate) fn with(&self, action: &Action) -> Option<ActionList> {
        let own = self.as_slice();
        own.iter().any(|own| own.is_same(action)).then(|| {
            let now = own.iter().map(|own| match own.is_same(action) {
                true => action.clone(),
                false => own.clone(),
            });
            now.collect()
        })
    }

    /// The same for all clones, as long as one of them is kept.
    fn id(&self) -> usize {
        self.0.as_ref().map_or(0, |bound| Arc::as_ptr(bound).addr())
    }

    /// `f`, called once for each list: a filter's is the same one in all instances and copies.
    pub(crate) fn once_each(
        mut f: impl FnMut(&ActionList) -> Option<ActionList>,
    ) -> impl FnMut(&ActionList) -> Option<ActionList> {
        let mut known = BTreeMap::new();
        move |list| {
            let now = known
                .entry(list.id())
                .or_insert_with(|| (list.clone(), f(list)));
            now.1.clone()
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for ActionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}
