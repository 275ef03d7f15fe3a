//! `pfifo`, `bfifo`, `pfifo_head_drop` (`struct tc_fifo_qopt`).

use softnet_tc::QdiscSpec;

use super::QdiscContext;
use crate::nl::{Attr, Errno, Error, Message};
use crate::tc::TCA_OPTIONS;

pub(super) fn parse(
    kind: &str,
    options: Option<Attr<'_>>,
    context: &QdiscContext,
) -> Result<QdiscSpec, Error> {
    // `fifo_init`.
    let limit = match options {
        Some(options) if options.data.len() < 4 => {
            let error = Error::from(Errno::EINVAL);
            return Err(error.help("A limit is a number of 32 bits").at(&options));
        }
        Some(options) => options.u32()?,
        None if kind == "bfifo" => context.tx_queue_len.saturating_mul(context.frame()),
        None => context.tx_queue_len,
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
