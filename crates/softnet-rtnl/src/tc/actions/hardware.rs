//! Which actions drivers may have. None has one here.

use softnet_tc::{ActionKind, ActionSpec, Control};

/// True if a driver may have the action, whether one has it or not (`offload_act_setup` of each
/// kind).
pub(super) fn fits(spec: &ActionSpec) -> bool {
    match &spec.kind {
        ActionKind::Gact(_) => matches!(
            spec.control,
            Control::Pass | Control::Drop | Control::Trap | Control::Goto(_)
        ),
        ActionKind::Skbedit(edit) => {
            let fields = [edit.priority, edit.mark, edit.ptype.map(u32::from)];
            let others = edit.mask.is_some() || edit.queue.is_some() || edit.inheritdsfield;
            fields.into_iter().flatten().count() == 1 && !others
        }
        // Keys of the old form name no header.
        ActionKind::Pedit(pedit) => {
            pedit.extended && pedit.keys.windows(2).all(|two| two[0].adds == two[1].adds)
        }
        ActionKind::Police(_)
        | ActionKind::Mirred(_)
        | ActionKind::Vlan(_)
        | ActionKind::Csum(_) => true,
        ActionKind::Skbmod(_) | ActionKind::Simple(_) => false,
    }
}

/// The kernel's warning about one that no driver may have in this form, where it has one.
pub(super) fn warning(spec: &ActionSpec) -> Option<&'static str> {
    if spec.skip_hw {
        return None;
    }
    // `tcf_police_act_to_flow_act`
    let is_way = |control| {
        matches!(
            control,
            Control::Pass
                | Control::Drop
                | Control::Pipe
                | Control::Continue
                | Control::Goto(_)
                | Control::Jump(_)
        )
    };
    match &spec.kind {
        ActionKind::Pedit(_) if !fits(spec) => {
            Some("act_pedit: Unsupported pedit command offload")
        }
        ActionKind::Police(police) if !is_way(spec.control) || !is_way(police.conform) => {
            Some("act_api: Failed to setup tc actions for offload")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use softnet_tc::ActionSpec;

    /// As `tc actions ls` of Linux 7.2 with iproute2 6.1 shows `used_hw_stats`, or not.
    #[test]
    fn drivers_may_have_some_actions() {
        for (words, fits) in [
            ("drop", true),
            ("trap", true),
            ("continue", false),
            ("jump 3 random determ pipe 10", false),
            (
                "police rate 1gbit burst 10k mtu 1500 conform-exceed pass",
                true,
            ),
            ("vlan pop", true),
            (
                "vlan push_eth dst_mac 2:0:0:0:0:1 src_mac 2:0:0:0:0:2",
                true,
            ),
            ("csum ip4h tcp", true),
            ("skbedit mark 7", true),
            ("skbedit mark 7/0xff", false),
            ("skbedit mark 9 inheritdsfield", false),
            ("skbedit queue_mapping 0", false),
            (
                "pedit ex munge eth offset 0 set 2/0 munge eth offset 4 set 7/0",
                true,
            ),
            (
                "pedit ex munge eth offset 0 set 2/0 munge eth offset 4 add 7/0",
                false,
            ),
            ("pedit munge offset 0 set 7/0", false),
            ("skbmod set etype 0x1234", false),
        ] {
            let spec: ActionSpec = words.parse().unwrap();
            assert_eq!(super::fits(&spec), fits, "{words}");
            let is_pedit = words.starts_with("pedit");
            assert_eq!(
                super::warning(&spec).is_some(),
                is_pedit && !fits,
                "{words}"
            );
        }
    }

    /// As `tc actions add` of Linux 7.2.
    #[test]
    fn what_exceeds_a_police_has_a_way_that_drivers_know() {
        for (words, warns) in [
            ("police rate 1gbit burst 10k", true),
            ("police rate 1gbit burst 10k skip_hw", false),
            ("police rate 1gbit burst 10k conform-exceed drop", false),
            (
                "police rate 1gbit burst 10k conform-exceed drop/pipe",
                false,
            ),
        ] {
            let spec: ActionSpec = words.parse().unwrap();
            assert_eq!(super::warning(&spec).is_some(), warns, "{words}");
        }
    }
}
