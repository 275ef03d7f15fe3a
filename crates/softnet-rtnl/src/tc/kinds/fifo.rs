//! `pfifo`, `bfifo`, `pfifo_head_drop` (`struct tc_fifo_qopt`) and `pfifo_fast`
//! (`struct tc_prio_qopt`).

use softnet::qdisc::PRIO_TO_BAND;
use softnet_tc::QdiscSpec;
use zerocopy::{Immutable, IntoBytes};

use super::Surroundings;
use crate::nl::{Attr, Error, Message};
use crate::tc::TCA_OPTIONS;

/// Bytes of an Ethernet header, which a `bfifo` counts.
const ETHERNET_HEADER: u32 = 14;

pub(super) fn parse(
    kind: &str,
    options: Option<Attr<'_>>,
    around: &Surroundings,
    _before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    // `fifo_init`: without options the defaults, of a change too.
    let limit = match options {
        Some(options) if options.data.len() < 4 => {
            return Err(Error::new(crate::nl::Errno::EINVAL).at(&options));
        }
        Some(options) => options.u32()?,
        None if kind == "bfifo" => around
            .tx_queue_len
            .saturating_mul(around.mtu.saturating_add(ETHERNET_HEADER)),
        None => around.tx_queue_len,
    };
    Ok(match kind {
        "bfifo" => QdiscSpec::Bfifo {
            limit: limit.into(),
        },
        "pfifo" => QdiscSpec::Pfifo { limit },
        _ => QdiscSpec::PfifoHeadDrop { limit },
    })
}

pub(super) fn dump(spec: &QdiscSpec, out: &mut Message<'_>) {
    let limit = match *spec {
        QdiscSpec::Pfifo { limit } | QdiscSpec::PfifoHeadDrop { limit } => limit,
        QdiscSpec::Bfifo { limit } => u32::try_from(limit).unwrap_or(u32::MAX),
        _ => return,
    };
    out.put_u32(TCA_OPTIONS, limit);
}

/// `struct tc_prio_qopt`.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct PrioOptions {
    bands: i32,
    priomap: [u8; 16],
}

pub(super) fn dump_fast(out: &mut Message<'_>) {
    out.put(
        TCA_OPTIONS,
        &PrioOptions {
            bands: 3,
            priomap: PRIO_TO_BAND,
        },
    );
}
