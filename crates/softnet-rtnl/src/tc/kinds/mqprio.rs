//! `mqprio` (`struct tc_mqprio_qopt`, `TCA_MQPRIO_*`). Queues are in software, so that what only
//! hardware can do is refused as by a driver that cannot.

use softnet::tx::{QueueMap, TcQueues};
use softnet_tc::QdiscSpec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nl::{Attr, Errno, Error, Message, NLA_F_NESTED, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const MODE: u16 = 1;
const SHAPER: u16 = 2;
const MIN_RATE64: u16 = 3;
const MAX_RATE64: u16 = 4;
const TC_ENTRY: u16 = 5;
const ENTRY_INDEX: u16 = 1;
const ENTRY_FP: u16 = 2;
/// `TC_FP_EXPRESS`: frames of the class preempt others.
const EXPRESS: u32 = 1;
/// `TC_QOPT_MAX_QUEUE`.
const CLASSES: usize = 16;

/// `struct tc_mqprio_qopt`.
#[derive(Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Options {
    num_tc: u8,
    prio_tc_map: [u8; 16],
    hw: u8,
    count: [u16; CLASSES],
    offset: [u16; CLASSES],
}

const POLICY: Policy = Policy::new(
    TC_ENTRY,
    &[
        (MODE, Rule::U16),
        (SHAPER, Rule::U16),
        (MIN_RATE64, Rule::NestedAny),
        (MAX_RATE64, Rule::NestedAny),
        (TC_ENTRY, Rule::NestedAny),
    ],
);

/// `mqprio_init`.
pub(super) fn parse(options: Option<Attr<'_>>, queues: usize) -> Result<QdiscSpec, Error> {
    let short = || Error::from(Errno::EINVAL).help("mqprio needs num_tc, map and queues");
    let options = options.ok_or_else(short)?;
    if options.data.len() < size_of::<Options>() {
        return Err(short().at(&options));
    }
    let qopt: Options = options.fixed()?;
    let classes = check(&qopt, queues).map_err(|error| error.at(&options))?;
    if options.data.len() > size_of::<Options>().next_multiple_of(4) {
        options.nested_behind(size_of::<Options>(), &POLICY)?;
        let text = "mqprio TCA_OPTIONS can only contain netlink attributes in hardware mode";
        return Err(Error::invalid(text).at(&options));
    }
    Ok(QdiscSpec::Mqprio(QueueMap {
        prio_tc_map: qopt.prio_tc_map,
        classes,
    }))
}

/// `mqprio_parse_opt`, `mqprio_validate_qopt`.
fn check(qopt: &Options, queues: usize) -> Result<Vec<TcQueues>, Error> {
    let refuse = |text: String| Err(Error::from(Errno::EINVAL).text(text));
    let num_tc = usize::from(qopt.num_tc);
    if num_tc > CLASSES {
        return Err(Error::invalid(
            "Number of traffic classes is outside valid range",
        ));
    }
    if qopt.prio_tc_map.iter().any(|&class| class >= qopt.num_tc) {
        let text = "Invalid traffic class in priority to traffic class mapping";
        return Err(Error::invalid(text));
    }
    if qopt.hw != 0 {
        let error = Error::invalid("Device does not support hardware offload");
        return Err(error.help("Add \"hw 0\""));
    }
    let ranges = qopt.count.into_iter().zip(qopt.offset).take(num_tc);
    let classes: Vec<TcQueues> = ranges
        .map(|(count, offset)| TcQueues { count, offset })
        .collect();
    let end = |class: &TcQueues| usize::from(class.offset) + usize::from(class.count);
    for (tc, class) in classes.iter().enumerate() {
        let TcQueues { count, offset } = *class;
        if count == 0 {
            return refuse(format!("sch_mqprio_lib: No queues for TC {tc}"));
        }
        if usize::from(offset) >= queues || end(class) > queues {
            return refuse(format!(
                "sch_mqprio_lib: Queues {count}:{offset} for TC {tc} exceed the {queues} TX \
                 queues available"
            ));
        }
        for (other_tc, other) in classes.iter().enumerate().skip(tc + 1) {
            if end(class) > other.offset.into() && end(other) > offset.into() {
                let TcQueues {
                    count: others,
                    offset: at,
                } = *other;
                return refuse(format!(
                    "sch_mqprio_lib: TC {tc} queues {count}@{offset} overlap with TC {other_tc} \
                     queues {others}@{at}"
                ));
            }
        }
    }
    Ok(classes)
}

pub(super) fn dump(map: &QueueMap, out: &mut Message<'_>) {
    let mut qopt = Options {
        num_tc: map.classes.len().try_into().unwrap_or(u8::MAX),
        prio_tc_map: map.prio_tc_map,
        ..Options::default()
    };
    for (tc, class) in map.classes.iter().enumerate().take(CLASSES) {
        (qopt.count[tc], qopt.offset[tc]) = (class.count, class.offset);
    }
    out.nest_with(TCA_OPTIONS, &qopt, |out| {
        for tc in 0..CLASSES as u32 {
            out.nest(NLA_F_NESTED | TC_ENTRY, |out| {
                out.put_u32(ENTRY_INDEX, tc);
                out.put_u32(ENTRY_FP, EXPRESS);
            });
        }
    });
}
