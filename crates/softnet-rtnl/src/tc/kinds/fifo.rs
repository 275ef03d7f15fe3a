//! `pfifo`, `bfifo`, `pfifo_head_drop` (`struct tc_fifo_qopt`).

use softnet_tc::{Field, QdiscSpec};

use crate::nl::{Attr, Errno, Error, Message};
use crate::tc::TCA_OPTIONS;

/// `fifo_init`.
pub(super) fn parse(spec: &mut QdiscSpec, options: Attr<'_>) -> Result<(), Error> {
    let Some(field) = limit(spec) else {
        return Ok(());
    };
    if options.data.len() < 4 {
        let error = Error::from(Errno::EINVAL);
        return Err(error.help("A limit is a number of 32 bits").at(&options));
    }
    let number = options.u32()?.into();
    field.set(number).map_err(|_| Error::from(Errno::EINVAL))
}

pub(super) fn dump(spec: &QdiscSpec, out: &mut Message<'_>) {
    if let Some(limit) = limit(&mut spec.clone()).and_then(|field| field.number()) {
        out.put_u32(TCA_OPTIONS, u32::try_from(limit).unwrap_or(u32::MAX));
    }
}

/// The only option.
fn limit(spec: &mut QdiscSpec) -> Option<Field<'_>> {
    (super::regular::options(spec.kind()).first()?.field)(spec)
}
