//! The table against a map, and what it costs.

use std::collections::HashMap;

use softnet::testing::Random;
use softnet::time::Time;

use super::table::{FlowTable, State};
use crate::qdisc::drr::Flows as _;

const SECOND: u64 = 1_000_000_000;

/// Keys lead to the flow that they led to before, as long as it is in use or fresh.
#[test]
fn a_key_keeps_its_flow() {
    let mut table = FlowTable::new(0x1234_5678_9abc_def0);
    let mut model: HashMap<u32, (u32, Time, bool)> = HashMap::new();
    let mut random = Random(9);
    let mut now = Time(SECOND);
    for step in 0..200_000_u32 {
        // The load grows, and then other keys come.
        let key = random.below(1 + step / 10) | (step >> 16) << 28;
        let busy = random.below(2) == 0;
        let index = table.find_or_add(key, 77, now).unwrap();
        if let Some(&(before, since, was_busy)) = model.get(&key)
            && (was_busy || now.since(since).as_millis() < 2990)
        {
            assert_eq!(index, before);
        }
        let flow = table.at(index);
        let was_idle = flow.state == State::Idle;
        if busy {
            flow.state = State::Listed;
        } else if !was_idle {
            flow.set_idle(now);
        }
        let since = match model.get(&key) {
            Some(&(before, since, false)) if was_idle && before == index => since,
            _ => now,
        };
        model.insert(key, (index, since, busy));
        now = now.plus_nanos(u64::from(random.below(200_000)));
    }
    let busy: Vec<u32> = model
        .values()
        .filter(|flow| flow.2)
        .map(|flow| flow.0)
        .collect();
    assert!(busy.len() > 1000 && table.collected > 1000);
    let mut distinct = busy.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), busy.len(), "no two flows in one slot");
    for (&key, &(index, ..)) in model.iter().filter(|(_, flow)| flow.2) {
        assert_eq!(table.find_or_add(key, 0, now), Some(index));
    }
}

/// Whoever sends again is found first in its bucket, and those that were before it stay known.
#[test]
fn who_sends_comes_to_the_front() {
    let mut table = FlowTable::new(0x1234_5678_9abc_def0);
    let now = Time(SECOND);
    let mut find = |key| table.find_or_add(key, 0, now).unwrap();
    let flows: Vec<u32> = (0..10_000).map(&mut find).collect();
    let mut moved = 0;
    for (key, &index) in (0..).zip(&flows) {
        moved += usize::from(table.ahead_of(key) > 0);
        assert_eq!(table.find_or_add(key, 0, now), Some(index));
        assert_eq!(table.ahead_of(key), 0);
    }
    assert!(moved > 1000, "{moved}");
    for (key, &index) in (0..).zip(&flows) {
        assert_eq!(table.find_or_add(key, 0, now), Some(index));
    }
}

/// Flows that are gone are removed as others come: the table does not grow with all that ever
/// came.
#[test]
fn idle_flows_are_collected() {
    let mut table = FlowTable::new(1);
    for n in 0..400_000_u32 {
        // 1,000 new flows a second.
        table
            .find_or_add(n, 0, Time(u64::from(n) * SECOND / 1000))
            .unwrap();
    }
    assert!(table.len() < 2 * 3_000 + 1000, "{}", table.len());
    assert_eq!(u64::from(table.len()) + table.collected, 400_000);
}

/// 100,000 flows take 7.5 MB: a line each, and two buckets of four bytes.
#[test]
fn memory_of_many_flows() {
    let mut table = FlowTable::new(1);
    for n in 0..100_000 {
        table.find_or_add(n, 0, Time(SECOND)).unwrap();
    }
    let bytes = table.memory();
    assert!((6_400_000..7_600_000).contains(&bytes), "{bytes}");
}

/// When all slots are taken, flows without packets give way at once, others never.
#[test]
fn a_full_table_refuses_or_forgets() {
    let mut table = FlowTable::new(1);
    let now = Time(SECOND);
    let mut add = |key: u32, state| {
        let index = table.find_or_add(key, 0, now)?;
        table.at(index).state = state;
        Some(index)
    };
    let full = 1 << 20;
    for n in 0..full {
        let state = if n % 2 == 0 {
            State::Listed
        } else {
            State::Idle
        };
        add(n, state).unwrap();
    }
    let mut taken = 0;
    while add(full + taken, State::Listed).is_some() {
        taken += 1;
    }
    assert_eq!(taken, full / 2);
    assert!(add(0, State::Listed).is_some());
}
