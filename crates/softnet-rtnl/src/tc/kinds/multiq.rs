//! `multiq` (`struct tc_multiq_qopt`): what a request says is not read.

use softnet_tc::QdiscSpec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nl::{Attr, Errno, Error, Message};
use crate::tc::TCA_OPTIONS;

/// `struct tc_multiq_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Options {
    bands: u16,
    max_bands: u16,
}

/// `multiq_init`, `multiq_tune`: as many bands as the link has queues.
pub(super) fn parse(options: Option<Attr<'_>>, queues: u16) -> Result<QdiscSpec, Error> {
    let refuse = || Error::from(Errno::EINVAL).help("multiq needs its options");
    let options = options.ok_or_else(refuse)?;
    if queues < 2 {
        let help = "multiq needs a link with several transmit queues";
        return Err(Error::from(Errno::EOPNOTSUPP).help(help));
    }
    if options.data.len() < size_of::<Options>() {
        return Err(refuse().at(&options));
    }
    Ok(QdiscSpec::Multiq { bands: queues })
}

/// Puts `TCA_OPTIONS`. `queues` are those of the link.
pub(super) fn dump(bands: u16, queues: u16, out: &mut Message<'_>) {
    let max_bands = queues.max(bands);
    out.put(TCA_OPTIONS, &Options { bands, max_bands });
}
