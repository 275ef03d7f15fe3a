//! `prio` (`struct tc_prio_qopt`), which `pfifo_fast` and `fq` show as well.

use softnet_tc::{MAX_BANDS, PrioSpec, QdiscSpec};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nl::{Attr, Errno, Error, Message};
use crate::tc::TCA_OPTIONS;

/// `struct tc_prio_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct PrioOptions {
    pub(super) bands: i32,
    pub(super) priomap: [u8; 16],
}

/// `prio_tune`: a change, too, names all there is.
pub(super) fn parse(options: Option<Attr<'_>>) -> Result<QdiscSpec, Error> {
    let refuse = |help: &str| Error::from(Errno::EINVAL).help(help);
    let options = options.ok_or_else(|| refuse("prio needs bands and a priomap"))?;
    if options.data.len() < size_of::<PrioOptions>() {
        return Err(refuse("prio needs bands and a priomap").at(&options));
    }
    let PrioOptions { bands, priomap } = options.fixed()?;
    let bands = u16::try_from(bands)
        .ok()
        .filter(|bands| (2..=MAX_BANDS).contains(bands))
        .ok_or_else(|| refuse("bands must be 2 to 16").at(&options))?;
    if priomap.iter().any(|&band| u16::from(band) >= bands) {
        return Err(refuse("priomap refers to a band that does not exist").at(&options));
    }
    Ok(QdiscSpec::Prio(PrioSpec { bands, priomap }))
}

/// Puts `TCA_OPTIONS`.
pub(super) fn put(bands: u16, priomap: &[u8; 16], out: &mut Message<'_>) {
    let (bands, priomap) = (bands.into(), *priomap);
    out.put(TCA_OPTIONS, &PrioOptions { bands, priomap });
}
