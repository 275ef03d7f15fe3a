//! The link that packets were received on (`TCA_FLOWER_INDEV`, `TCA_U32_INDEV`, `TCA_FW_INDEV`).
//!
//! Source: `include/net/pkt_cls.h`.

use softnet_engine::{Devices, Engine, NAME_MAX};
use softnet_tc::Indev;

use crate::nl::{Attrs, Errno, Error, Message};

/// The link that an attribute names, which is still to be found.
pub(super) fn parse(attrs: &Attrs<'_>, kind: u16) -> Result<Option<Indev>, Error> {
    let Some(attr) = attrs.get(kind) else {
        return Ok(None);
    };
    let name = attr.str()?;
    if name.len() > NAME_MAX {
        return Err(Error::invalid("Interface name too long").at(&attr));
    }
    Ok(Some(Indev::new(name)))
}

/// Finds the link (`tcf_change_indev`), if it is not that of a filter that is changed.
pub(super) fn find<D: Devices>(
    engine: &Engine<D>,
    indev: Option<&mut Indev>,
) -> Result<(), Error> {
    if let Some(indev) = indev.filter(|indev| indev.is_new()) {
        let found = engine.indev(&indev.name());
        let unknown = |_| Error::new(Errno::ENODEV).text("Network device not found");
        *indev = found.map_err(unknown)?;
    }
    Ok(())
}

/// Writes its name, if it is there.
pub(super) fn dump(kind: u16, indev: Option<&Indev>, out: &mut Message<'_>) {
    if let Some(indev) = indev.filter(|indev| indev.link().is_some()) {
        out.put_str(kind, &indev.name());
    }
}
