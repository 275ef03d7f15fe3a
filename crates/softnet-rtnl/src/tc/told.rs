//! Told of a tree that was changed as a whole, by a reload of the configuration: what differs, as
//! if `tc` had changed it.

use std::collections::BTreeMap;

use softnet::qdisc::QdiscStats;
use softnet_engine::{Devices, Engine};
use softnet_tc::{
    ChainTemplate, FilterKey, FilterSpec, FilterStats, Handle, Hook, Node, TreeSpec,
};

use super::actions::ShownAt;
use super::filters::{self, Home, Part};
use super::place::Place;
use super::shown::{Class, Shown};
use super::{RTM_DELCHAIN, RTM_DELQDISC, RTM_DELTCLASS, RTM_DELTFILTER};
use super::{RTM_NEWCHAIN, RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER};
use super::{class, hook, qdisc};
use crate::nl::{NLM_F_REPLACE, Replies};

/// Tells of what a link's tree has become.
pub(crate) fn publish<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    before: &TreeSpec,
    replies: &mut Replies,
) {
    // Nothing, if the link is gone by now.
    let at = ShownAt::of(engine);
    let _ = Place::read(engine, link, |place| tell(&place, before, at, replies));
}

fn tell(place: &Place<'_>, before: &TreeSpec, at: ShownAt, replies: &mut Replies) {
    let now = place.tree.spec();
    gone(place, before, at, replies);
    if !hook_stays(before, now)
        && let Some(hook) = now.hook()
    {
        let shown = hook::Shown::uncounted(place.index, hook);
        shown.tell(RTM_NEWQDISC, NLM_F_REPLACE, replies);
    }
    for node in now.nodes() {
        let known = before.node(node.handle);
        let is_same = |known: &Node| known.qdisc == node.qdisc && known.stab == node.stab;
        let is_kept = stays(before, now, node.handle);
        if !is_kept || !known.is_some_and(is_same) {
            let flags = if is_kept { 0 } else { NLM_F_REPLACE };
            let shown = place.shown(node.into());
            qdisc::tell(replies, RTM_NEWQDISC, flags, &shown);
        }
    }
    for (name, node) in now.added_classes() {
        let known = before.class_node(name);
        let known = known.filter(|_| stays(before, now, name.qdisc()));
        let is_same = known.is_some_and(|known| known.spec == node.spec);
        if !is_same && let Some(class) = Class::new(place, name) {
            class::tell(replies, RTM_NEWTCLASS, &class);
        }
    }
    let known = chains_of(before);
    for (parent, chain, template) in now.chains() {
        let known = known.get(&(parent, chain));
        let known = known.filter(|_| stays(before, now, parent.qdisc()));
        if known != Some(&template) {
            let home = Home::Link(place.index, parent);
            filters::tell_chain(home, RTM_NEWCHAIN, chain, template, replies);
        }
    }
    let known = filters_of(before);
    for spec in now.filters() {
        let known = known.get(&(spec.parent, spec.key()));
        let known = known.filter(|_| stays(before, now, spec.parent.qdisc()));
        let list = now.filters_of(spec.parent);
        let found = list.ok().and_then(|list| list.get(spec.key()).ok());
        if known != Some(&spec)
            && let Some(found) = found
        {
            let (spec, stats) = place.tree.filter_sum(found);
            let part = Part::Filter(&stats);
            let shown = filters::Shown::new(Home::Link(place.index, spec.parent), spec, part, at);
            filters::tell(replies, RTM_NEWTFILTER, 0, &shown);
        }
    }
}

/// Tells of what is not there any more, but not of what went with the qdisc that it was part of.
fn gone(place: &Place<'_>, before: &TreeSpec, at: ShownAt, replies: &mut Replies) {
    let now = place.tree.spec();
    let has_stayed = |name: Handle| stays(before, now, name.qdisc());
    for spec in before.filters().filter(|spec| has_stayed(spec.parent)) {
        let list = now.filters_of(spec.parent);
        if !list.is_ok_and(|list| list.get(spec.key()).is_ok()) {
            let stats = FilterStats::default();
            let part = Part::Filter(&stats);
            let shown = filters::Shown::new(Home::Link(place.index, spec.parent), spec, part, at);
            filters::tell(replies, RTM_DELTFILTER, 0, &shown);
        }
    }
    let chains = chains_of(now);
    for (parent, chain, template) in before.chains().filter(|of| has_stayed(of.0)) {
        if chains.get(&(parent, chain)) != Some(&template) {
            let home = Home::Link(place.index, parent);
            filters::tell_chain(home, RTM_DELCHAIN, chain, template, replies);
        }
    }
    if !hook_stays(before, now)
        && let Some(hook) = before.hook()
    {
        hook::Shown::uncounted(place.index, hook).tell(RTM_DELQDISC, 0, replies);
    }
    for node in before.nodes().filter(|node| !has_stayed(node.handle)) {
        if node.parent != Handle::ROOT && !has_stayed(node.parent) {
            continue;
        }
        let shown = Shown {
            index: place.index,
            parent: before.named_parent(node.handle).unwrap_or(node.parent),
            handle: node.handle,
            references: 1,
            spec: node.qdisc.clone(),
            stats: QdiscStats::default(),
            xstats: None,
            rate: None,
            stab: node.stab.clone(),
            context: place.context(node.parent),
        };
        qdisc::tell(replies, RTM_DELQDISC, 0, &shown);
    }
    for (name, _) in before.added_classes() {
        if has_stayed(name)
            && now.class_node(name).is_none()
            && let Some(class) = Class::gone(place.index, before, name)
        {
            class::tell(replies, RTM_DELTCLASS, &class);
        }
    }
}

/// True if a qdisc is where it was, of the kind that it was, and so are those above it.
fn stays(before: &TreeSpec, now: &TreeSpec, handle: Handle) -> bool {
    if handle == Hook::HANDLE && before.node(handle).or_else(|| now.node(handle)).is_none() {
        return hook_stays(before, now);
    }
    let (Some(before_node), Some(node)) = (before.node(handle), now.node(handle)) else {
        return false;
    };
    let same_kind = before_node.qdisc.kind() == node.qdisc.kind();
    let is_root = node.parent == Handle::ROOT;
    same_kind
        && before_node.parent == node.parent
        && (is_root || stays(before, now, node.parent.qdisc()))
}

/// True if the qdisc at the hooks is the same, whatever its filters.
fn hook_stays(before: &TreeSpec, now: &TreeSpec) -> bool {
    let properties = |hook: &Hook| (hook.kind, hook.ingress.block, hook.egress.block);
    let (before, now) = (before.hook(), now.hook());
    before.is_some() && before.map(properties) == now.map(properties)
}

fn filters_of(tree: &TreeSpec) -> BTreeMap<(Handle, FilterKey), &FilterSpec> {
    let filters = tree.filters();
    filters
        .map(|spec| ((spec.parent, spec.key()), spec))
        .collect()
}

fn chains_of(tree: &TreeSpec) -> BTreeMap<(Handle, u32), Option<&ChainTemplate>> {
    let chains = tree.chains();
    chains
        .map(|(parent, chain, template)| ((parent, chain), template))
        .collect()
}
