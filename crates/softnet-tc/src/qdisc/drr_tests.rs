//! Deficit round robin against its rounds taken one by one.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::drr::{Flows, Linked, RoundRobin, UNLISTED};

struct Flow {
    link: u32,
    credit: i32,
}

impl Linked for Flow {
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
    fn credit(&mut self) -> &mut i32 {
        &mut self.credit
    }
}

/// Flows, and how often one was looked at.
struct Counted {
    flows: Vec<Flow>,
    looks: usize,
}

impl Flows for Counted {
    type Flow = Flow;
    fn at(&mut self, index: u32) -> &mut Flow {
        self.looks += 1;
        &mut self.flows[index as usize]
    }
}

/// As [`RoundRobin`], one visit after the other.
#[derive(Default)]
struct Reference {
    credits: Vec<i64>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl Reference {
    fn select(&mut self, quantum: i64) -> Option<u32> {
        loop {
            let list = if self.new.is_empty() {
                &mut self.old
            } else {
                &mut self.new
            };
            let index = *list.front()?;
            let credit = &mut self.credits[index as usize];
            if *credit > 0 {
                return Some(index);
            }
            *credit += quantum;
            list.pop_front();
            self.old.push_back(index);
        }
    }
}

proptest! {
    /// Flows are served in the order, and have the credit, of rounds that are taken one by one.
    #[test]
    fn skipped_rounds_change_nothing(
        credits in prop::collection::vec(-3_000..2_000_i32, 1..20),
        quantum in 1..300_i32,
        costs in prop::collection::vec(0..5_000_i32, 1..60),
        every in 1..10_usize,
    ) {
        let mut rounds = RoundRobin::default();
        let mut reference = Reference {
            credits: credits.iter().map(|&credit| credit.into()).collect(),
            ..Reference::default()
        };
        let flows = credits.iter().map(|&credit| Flow { link: UNLISTED, credit }).collect();
        let mut flows = Counted { flows, looks: 0 };
        let mut rest = 0..credits.len() as u32;
        for (n, cost) in costs.into_iter().enumerate() {
            // Some flows at first, and others as time goes on.
            let joining = if n % every == 0 { 3 } else { 0 };
            for index in rest.by_ref().take(joining) {
                rounds.add_new(&mut flows, index);
                reference.new.push_back(index);
            }
            let selected = rounds.select(&mut flows, quantum);
            prop_assert_eq!(selected, reference.select(quantum.into()));
            let Some(index) = selected else { continue };
            flows.at(index).credit -= cost;
            reference.credits[index as usize] -= i64::from(cost);
        }
        let credits: Vec<i64> = flows.flows.iter().map(|flow| flow.credit.into()).collect();
        prop_assert_eq!(credits, reference.credits);
    }
}

/// INV-TX-12: however much all flows owe, here the most that there can be, the next one is found
/// in a few looks at each.
#[test]
fn inv_tx_12_debts_cost_no_rounds() {
    const FLOWS: usize = 1024;
    for (least, most) in [(i32::MIN, i32::MIN), (i32::MIN, -106_000_000), (-256, 0)] {
        let credit = |n| if n == FLOWS / 2 { most } else { least };
        let flow = |n| Flow {
            link: UNLISTED,
            credit: credit(n),
        };
        let flows = (0..FLOWS).map(flow).collect();
        let mut flows = Counted { flows, looks: 0 };
        let mut rounds = RoundRobin::default();
        for index in 0..FLOWS as u32 {
            rounds.add_new(&mut flows, index);
        }
        flows.looks = 0;
        let first = rounds.select(&mut flows, 256).unwrap() as usize;
        assert_eq!(credit(first), most);
        assert!(flows.looks <= 20 * FLOWS, "{}", flows.looks);
    }
}
