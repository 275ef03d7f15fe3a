//! Requests about actions: `tc actions`.

use std::collections::BTreeMap;

use softnet_tc::{Action, ActionKind, EstimatorSpec};

use super::*;
use crate::nl::{NLM_F_ROOT, Policy};

/// `struct tcamsg`
const HEADER: u32 = 0;
/// `TCA_ROOT_*`
const TAB: u16 = 1;
const ROOT_FLAGS: u16 = 2;
const COUNT: u16 = 3;
/// `TCA_ACT_*`
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const INDEX: u16 = 3;
const STATS: u16 = 4;
/// `TCA_GACT_PARMS`, and `TC_ACT_OK` and `TC_ACT_SHOT` there
const PARMS: u16 = 2;
const OK: u32 = 0;
const SHOT: u32 = 2;

/// A `gact` of this index and control.
fn gact(index: u32, control: u32) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(KIND, "gact");
        out.nest(OPTIONS, |out| {
            // index, capab, action, refcnt, bindcnt
            out.put(PARMS, &[index, 0, control, 0, 0]);
        });
    }
}

/// A filter for all packets with this action.
fn matchall_with(action: impl Fn(&mut Message<'_>)) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(TCA_KIND, "matchall");
        // TCA_MATCHALL_ACT
        out.nest(TCA_OPTIONS, |out| {
            out.nest(2, |out| out.nest(1, &action));
        });
    }
}

/// One by its name.
fn named(index: u32) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(KIND, "gact");
        out.put_u32(INDEX, index);
    }
}

/// Actions of a message, by their indices: control, references, filters that have it, and whether
/// statistics are shown.
type Shown = BTreeMap<u32, (u32, u32, u32, bool)>;

fn shown(bytes: &[u8]) -> Shown {
    const ALL: Policy = Policy::new(33, &[]);
    let mut all = Shown::new();
    for message in Requests::new(bytes) {
        let attrs = message.attrs::<u32>(&ALL, Validation::Liberal).unwrap();
        // A dump counts them from 0 on.
        let list: Vec<_> = attrs.get(TAB).unwrap().children().collect();
        if let Some(count) = attrs.u32(COUNT).unwrap() {
            assert_eq!(count as usize, list.len());
        }
        for one in list {
            let one = one.nested(&ALL).unwrap();
            assert_eq!(one.str(KIND).unwrap(), Some("gact"));
            let Some(options) = one.get(OPTIONS) else {
                let index = one.u32(INDEX).unwrap();
                all.insert(index.unwrap_or(0), (0, 0, 0, one.has(STATS)));
                continue;
            };
            let options = options.nested(&ALL).unwrap();
            let parms: [u32; 5] = options.fixed(PARMS).unwrap().unwrap();
            let [index, _, control, references, binds] = parms;
            all.insert(index, (control, references, binds, one.has(STATS)));
        }
    }
    all
}

impl World {
    /// A request with actions, and what is answered and told.
    fn act(
        &mut self,
        kind: u16,
        flags: u16,
        actions: &[Body<'_>],
    ) -> Result<(Shown, Shown), String> {
        self.act_as(&CLIENT, kind, flags, actions)
    }

    fn act_as(
        &mut self,
        client: &crate::nl::Client,
        kind: u16,
        flags: u16,
        actions: &[Body<'_>],
    ) -> Result<(Shown, Shown), String> {
        let request = message(kind, flags, &HEADER, |out| {
            out.nest(TAB, |out| {
                for (number, action) in (1..).zip(actions) {
                    out.nest(number, |out| action(out));
                }
            });
        });
        let (answer, replies) = testing::ask(&mut self.rtnl, client, &request);
        self.warning.clone_from(&replies.warning);
        let events: Vec<_> = replies.events().iter().collect();
        assert!(answer.is_ok() || events.is_empty());
        answer.map_err(|error| error.to_string())?;
        let told = events.iter().flat_map(|event| {
            assert_eq!(event.group, RTNLGRP_TC);
            shown(event.message.as_bytes())
        });
        Ok((shown(replies.messages().as_bytes()), told.collect()))
    }

    /// `tc actions ls action gact`, in parts.
    fn actions(&mut self, terse: bool) -> (usize, Shown) {
        let request = message(RTM_GETACTION, NLM_F_DUMP, &HEADER, |out| {
            out.nest(TAB, |out| {
                out.nest(1, |out| out.put_str(KIND, "gact"));
            });
            let large = 1 | if terse { 2 } else { 0 };
            out.put(ROOT_FLAGS, &[large, large]);
        });
        let parts = testing::dump(&mut self.rtnl, &CLIENT, &request).unwrap();
        let all = parts.iter().flat_map(|part| shown(part.as_bytes()));
        (parts.len(), all.collect())
    }
}

#[test]
fn actions_are_added_replaced_shown_and_deleted() {
    let mut world = World::new();
    let (answered, told) = world.act(RTM_NEWACTION, ADD, &[&gact(7, OK)]).unwrap();
    assert!(answered.is_empty());
    assert_eq!(told, Shown::from([(7, (OK, 1, 0, true))]));
    let again = world.act(RTM_NEWACTION, ADD, &[&gact(7, SHOT)]);
    assert!(again.unwrap_err().contains("use replace or change"));
    let (_, told) = world
        .act(RTM_NEWACTION, REPLACE, &[&gact(7, SHOT)])
        .unwrap();
    // With the reference that the request has.
    assert_eq!(told, Shown::from([(7, (SHOT, 2, 0, true))]));
    let (got, told) = world.act(RTM_GETACTION, 0, &[&named(7)]).unwrap();
    assert_eq!(
        (got, told.len()),
        (Shown::from([(7, (SHOT, 1, 0, true))]), 0)
    );
    // An index is chosen.
    let (_, told) = world.act(RTM_NEWACTION, ADD, &[&gact(0, OK)]).unwrap();
    assert_eq!(told, Shown::from([(1, (OK, 1, 0, true))]));
    assert_eq!(world.actions(false).1.len(), 2);
    let (_, terse) = world.actions(true);
    assert_eq!(terse.len(), 2);
    assert!(terse.values().all(|&(control, ..)| control == 0));
    let missing = "TC action with specified index not found";
    for kind in [RTM_GETACTION, RTM_DELACTION] {
        let refused = world.act(kind, 0, &[&named(8)]).unwrap_err();
        assert!(refused.contains(missing), "{refused}");
    }
    let (_, told) = world.act(RTM_DELACTION, 0, &[&named(7)]).unwrap();
    assert_eq!(told, Shown::from([(7, (SHOT, 0, 0, true))]));
    assert_eq!(world.actions(false).1.into_keys().collect::<Vec<_>>(), [1]);
}

/// All of a batch or none: not those before the one that is refused.
#[test]
fn a_batch_is_done_or_refused_as_a_whole() {
    let mut world = World::new();
    let batch: Vec<_> = (1..=32).map(|index| gact(index, OK)).collect();
    let bodies: Vec<Body<'_>> = batch.iter().map(|one| one as Body<'_>).collect();
    let (_, told) = world.act(RTM_NEWACTION, ADD, &bodies).unwrap();
    assert_eq!((told.len(), world.actions(false).1.len()), (32, 32));
    for last in [gact(5, OK), gact(50, 1 << 29 | 1)] {
        let refused = world.act(RTM_NEWACTION, ADD, &[&gact(40, OK), &gact(41, OK), &last]);
        assert!(refused.is_err());
        assert_eq!(world.actions(false).1.len(), 32);
    }
    // What is not there stops a request before anything is deleted.
    let refused = world.act(RTM_DELACTION, 0, &[&named(1), &named(99)]);
    assert!(refused.is_err());
    assert_eq!(world.actions(false).1.len(), 32);
    world
        .act(RTM_DELACTION, 0, &[&named(1), &named(32)])
        .unwrap();
    let left: Vec<u32> = world.actions(false).1.into_keys().collect();
    assert_eq!(left, (2..=31).collect::<Vec<_>>());
}

#[test]
fn a_dump_comes_in_parts() {
    let mut world = World::new();
    for first in (1..=500).step_by(32) {
        let batch: Vec<_> = (first..first + 32).map(|index| gact(index, OK)).collect();
        let bodies: Vec<Body<'_>> = batch.iter().map(|one| one as Body<'_>).collect();
        world.act(RTM_NEWACTION, ADD, &bodies).unwrap();
    }
    let (parts, all) = world.actions(false);
    assert!(parts > 1);
    assert_eq!(
        all.into_keys().collect::<Vec<_>>(),
        (1..=512).collect::<Vec<_>>()
    );
}

/// `TCA_ACT_USED_HW_STATS` of each action of a message.
fn used_hw_stats(bytes: &[u8]) -> Vec<Option<[u32; 2]>> {
    const ALL: Policy = Policy::new(33, &[]);
    const USED: u16 = 9;
    let message = Requests::new(bytes).next().unwrap();
    let attrs = message.attrs::<u32>(&ALL, Validation::Liberal).unwrap();
    let actions = attrs.get(TAB).unwrap().children();
    actions
        .map(|one| one.nested(&ALL).unwrap().fixed(USED).unwrap())
        .collect()
}

/// A dump asks the hardware, of which there is none, for what it counted of each action that a
/// driver may have (`tcf_dump_walker`). `reclassify` is none (`tcf_gact_offload_act_setup`). What
/// it said is shown of the action from then on, until the hardware is asked for a filter's counts
/// (`tcf_exts_hw_stats_update`).
#[test]
fn a_dump_says_that_no_hardware_counts() {
    // TC_ACT_RECLASSIFY
    const RECLASSIFY: u32 = 1;
    // No bit of TCA_ACT_HW_STATS_ANY.
    const NONE: Option<[u32; 2]> = Some([0, 3]);
    let (mut world, header) = with_prio();
    for (index, control) in [(1, OK), (2, RECLASSIFY)] {
        let one = gact(index, control);
        world.act(RTM_NEWACTION, ADD, &[&one]).unwrap();
    }
    let get = |world: &mut World| {
        let got = world.act_on_one(RTM_GETACTION, 0, &named(1)).unwrap();
        used_hw_stats(&got)
    };
    assert_eq!(get(&mut world), [None]);
    let request = message(RTM_GETACTION, NLM_F_DUMP, &HEADER, |out| {
        out.nest(TAB, |out| {
            out.nest(1, |out| out.put_str(KIND, "gact"));
        });
    });
    let parts = testing::dump(&mut world.rtnl, &CLIENT, &request).unwrap();
    assert_eq!(used_hw_stats(parts[0].as_bytes()), [NONE, None]);
    assert_eq!(get(&mut world), [NONE]);
    let filter = matchall_with(gact(1, OK));
    world.ask(RTM_NEWTFILTER, ADD, header, &filter).unwrap();
    assert_eq!(get(&mut world), [NONE]);
    world.dump(RTM_GETTFILTER, at(1, "1:", ""), &none);
    assert_eq!(get(&mut world), [None]);
}

/// The action of a filter is not kept by a program that replaces it: it goes with the filter.
#[test]
fn a_replaced_action_goes_with_its_filter() {
    let (mut world, header) = with_prio();
    let filter = matchall_with(gact(4, OK));
    world.ask(RTM_NEWTFILTER, ADD, header, &filter).unwrap();
    let (_, told) = world
        .act(RTM_NEWACTION, REPLACE, &[&gact(4, SHOT)])
        .unwrap();
    assert_eq!(told, Shown::from([(4, (SHOT, 2, 1, true))]));
    let kept = Shown::from([(4, (SHOT, 1, 1, true))]);
    assert_eq!(world.actions(false).1, kept);
    world.ask(RTM_DELTFILTER, 0, header, &none).unwrap();
    assert!(world.actions(false).1.is_empty());
}

/// An action of a filter stays: it is not deleted, and others are flushed up to it.
#[test]
fn actions_of_filters_are_not_deleted() {
    let (mut world, header) = with_prio();
    for index in [3, 4, 9] {
        world.act(RTM_NEWACTION, ADD, &[&gact(index, OK)]).unwrap();
    }
    let filter = matchall_with(gact(4, OK));
    world.ask(RTM_NEWTFILTER, ADD, header, &filter).unwrap();
    let (_, all) = world.actions(false);
    assert_eq!(all[&4], (OK, 2, 1, true));
    assert!(world.act(RTM_DELACTION, 0, &[&named(4)]).is_err());
    let flush = |out: &mut Message<'_>| out.put_str(KIND, "gact");
    world.act(RTM_DELACTION, NLM_F_ROOT, &[&flush]).unwrap();
    let warning = world.warning.clone();
    assert_eq!(warning.as_deref(), Some("Unable to flush all TC actions"));
    let left: Vec<u32> = world.actions(false).1.into_keys().collect();
    assert_eq!(left, [4, 9]);
    let none = world.act(RTM_DELACTION, NLM_F_ROOT, &[&flush]);
    assert!(none.unwrap_err().contains("filters have the first action"));
}

/// A `police` of this index, with an average rate in bytes per second, that drops.
fn police(index: u32, avrate: u32) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(KIND, "police");
        out.nest(OPTIONS, |out| {
            // TCA_POLICE_TBF, a `struct tc_police` without rates, and TCA_POLICE_AVRATE
            let mut parms = [0; 14];
            parms[..2].copy_from_slice(&[index, SHOT]);
            out.put(1, &parms);
            out.put_u32(4, avrate);
        });
    }
}

/// A filter with this estimator and such a `police`.
fn policed(rate: Option<[u8; 2]>) -> impl Fn(&mut Message<'_>) {
    move |out| {
        out.put_str(TCA_KIND, "matchall");
        if let Some(rate) = rate {
            out.put_bytes(TCA_RATE, &rate);
        }
        // TCA_MATCHALL_ACT
        out.nest(TCA_OPTIONS, |out| {
            out.nest(2, |out| out.nest(1, |out| police(0, 1000)(out)));
        });
    }
}

impl World {
    /// A request with one action, and what it is answered with.
    fn act_on_one(&mut self, kind: u16, flags: u16, action: Body<'_>) -> Result<Vec<u8>, String> {
        let request = message(kind, flags, &HEADER, |out| {
            out.nest(TAB, |out| out.nest(1, |out| action(out)));
        });
        let (answer, replies) = testing::ask(&mut self.rtnl, &CLIENT, &request);
        answer.map_err(|error| error.to_string())?;
        Ok(replies.messages().as_bytes().to_vec())
    }

    fn police(&self, index: u32) -> Option<Action> {
        let engine = self.engine.lock().unwrap();
        engine.actions(|table, _| table.get("police", index))
    }
}

/// A link with a `prio`, and the header of a filter of priority 1 there, for all protocols.
fn with_prio() -> (World, TcMsg) {
    let mut world = World::new();
    let options = prio(3);
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &options)
        .unwrap();
    let header = TcMsg {
        info: 1 << 16 | u32::from(3_u16.to_be()),
        ..at(1, "1:", "")
    };
    (world, header)
}

/// An average rate needs the estimator that a filter's request has for its actions. `tc actions`
/// has none, but one that runs goes on.
#[test]
fn average_rates_are_estimated() {
    const ALL: Policy = Policy::new(33, &[]);
    let (mut world, header) = with_prio();
    // None; an interval that there is not; and a second, of which an eighth counts.
    for (rate, refused) in [
        (None, "an avrate needs an estimator"),
        (Some([0xfd, 3]), "EINVAL"),
    ] {
        let error = world.ask(RTM_NEWTFILTER, ADD, header, &policed(rate));
        let error = error.unwrap_err();
        assert!(error.starts_with(refused), "{error}");
    }
    let error = world.act_on_one(RTM_NEWACTION, ADD, &police(9, 1000));
    assert!(
        error
            .unwrap_err()
            .starts_with("an avrate needs an estimator")
    );
    world
        .ask(RTM_NEWTFILTER, ADD, header, &policed(Some([0, 3])))
        .unwrap();
    let estimator = EstimatorSpec::new(0, 3).unwrap();
    let sampled = world.engine.lock().unwrap().sample_rates();
    assert_eq!(sampled, Some(estimator.period()));
    // Shown as of what counted nothing yet.
    let named = |out: &mut Message<'_>| {
        out.put_str(KIND, "police");
        out.put_u32(INDEX, 1);
    };
    let shown = world.act_on_one(RTM_GETACTION, 0, &named).unwrap();
    let message = Requests::new(&shown).next().unwrap();
    let attrs = message.attrs::<u32>(&ALL, Validation::Liberal).unwrap();
    let list = attrs.get(TAB).unwrap().nested(&ALL).unwrap();
    let one = list.get(1).unwrap().nested(&ALL).unwrap();
    let stats = one.get(STATS).unwrap().nested(&ALL).unwrap();
    // TCA_STATS_RATE_EST
    let rate: Option<[u32; 2]> = stats.fixed(2).unwrap();
    assert_eq!(rate, Some([0, 0]));
    let options = one.get(OPTIONS).unwrap().nested(&ALL).unwrap();
    assert_eq!(options.u32(4), Ok(Some(1000)));
    world
        .act_on_one(RTM_NEWACTION, REPLACE, &police(1, 2000))
        .unwrap();
    let action = world.police(1).unwrap();
    let spec = action.spec();
    assert!(matches!(&spec.kind, ActionKind::Police(police) if police.avrate == 2000));
    assert_eq!(spec.estimator, Some(estimator));
    assert!(world.police(9).is_none());
}

/// Counts of an old `police` are beside the options of its filter, where `tc -s` looks.
#[test]
fn an_old_police_counts_beside_its_filter() {
    const ALL: Policy = Policy::new(33, &[]);
    let (mut world, header) = with_prio();
    let header = TcMsg {
        handle: 7,
        ..header
    };
    let filter = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "fw");
        // TCA_FW_POLICE, with TCA_POLICE_TBF for frames of up to 1500 bytes
        let mut parms = [0; 14];
        (parms[1], parms[4]) = (SHOT, 1500);
        out.nest(TCA_OPTIONS, |out| out.nest(2, |out| out.put(1, &parms)));
    };
    world.ask(RTM_NEWTFILTER, ADD, header, &filter).unwrap();
    let request = message(RTM_GETTFILTER, NLM_F_DUMP, &at(1, "1:", ""), |_| {});
    let parts = testing::dump(&mut world.rtnl, &CLIENT, &request).unwrap();
    let messages = parts.iter().flat_map(|part| Requests::new(part.as_bytes()));
    let filters = messages.filter(|message| message.kind == RTM_NEWTFILTER);
    let counts = |message: Request<'_>| {
        let attrs = message.attrs::<TcMsg>(&ALL, Validation::Liberal).unwrap();
        attrs.has(TCA_STATS)
    };
    // The priority, and the filter.
    assert_eq!(filters.map(counts).collect::<Vec<_>>(), [false, true]);
}
