//! Traffic control: what `tc qdisc`, `tc class`, `tc filter` and `tc chain` ask for.
//!
//! Source: `net/sched/sch_api.c`.

mod actions;
mod class;
pub mod extras;
mod filters;
mod hook;
pub mod kinds;
mod modify;
mod place;
mod qdisc;
mod refusal;
mod shown;
mod stats;
#[cfg(test)]
mod tests;
mod told;

pub(crate) use told::publish;

use softnet_engine::{Devices, Engine};
use softnet_tc::{EstimatorSpec, SizeTable};

use crate::nl::headers::TcMsg;
use crate::nl::{
    Attrs, Chunk, Errno, Error, Policy, Position, Progress, Replies, Request, Rule, Validation,
};

/// Types of messages.
pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_GETQDISC: u16 = 38;
pub(crate) const RTM_NEWTCLASS: u16 = 40;
pub(crate) const RTM_DELTCLASS: u16 = 41;
pub(crate) const RTM_GETTCLASS: u16 = 42;
pub(crate) const RTM_NEWTFILTER: u16 = 44;
pub(crate) const RTM_DELTFILTER: u16 = 45;
pub(crate) const RTM_GETTFILTER: u16 = 46;
pub(crate) const RTM_NEWCHAIN: u16 = 100;
pub(crate) const RTM_DELCHAIN: u16 = 101;
pub(crate) const RTM_GETCHAIN: u16 = 102;
pub(crate) const RTM_NEWACTION: u16 = 48;
pub(crate) const RTM_DELACTION: u16 = 49;
pub(crate) const RTM_GETACTION: u16 = 50;
/// Who hears of qdiscs, classes and filters.
pub(crate) const RTNLGRP_TC: u32 = 4;

/// `TCA_OPTIONS`: what a kind of qdisc, class or filter is told.
pub const TCA_OPTIONS: u16 = 2;
/// Attributes.
pub(crate) const TCA_KIND: u16 = 1;
const TCA_STATS: u16 = 3;
const TCA_XSTATS: u16 = 4;
const TCA_RATE: u16 = 5;
const TCA_STATS2: u16 = 7;
const TCA_STAB: u16 = 8;
const TCA_DUMP_INVISIBLE: u16 = 10;
pub(crate) const TCA_CHAIN: u16 = 11;
const TCA_HW_OFFLOAD: u16 = 12;
const TCA_INGRESS_BLOCK: u16 = 13;
const TCA_EGRESS_BLOCK: u16 = 14;
const TCA_MAX: u16 = 16;

/// `rtm_tca_policy`.
pub(crate) const POLICY: Policy = Policy::new(
    TCA_MAX,
    &[
        (TCA_KIND, Rule::Str { max: 0 }),
        (TCA_RATE, Rule::Binary { max: 2 }),
        (TCA_STAB, Rule::NestedAny),
        (TCA_DUMP_INVISIBLE, Rule::Flag),
        (TCA_CHAIN, Rule::U32),
        (TCA_INGRESS_BLOCK, Rule::U32),
        (TCA_EGRESS_BLOCK, Rule::U32),
    ],
);

/// A request and its parsed parts.
struct Asked<'a> {
    request: Request<'a>,
    header: TcMsg,
    attrs: Attrs<'a>,
}

impl<'a> Asked<'a> {
    fn read(request: &Request<'a>) -> Result<Asked<'a>, Error> {
        Ok(Asked {
            request: *request,
            header: request.header()?,
            attrs: request.attrs::<TcMsg>(&POLICY, Validation::Liberal)?,
        })
    }

    /// The link that it is about, which is there.
    fn link<D: Devices>(&self, engine: &Engine<D>) -> Result<u32, Error> {
        let index = u32::try_from(self.header.ifindex).ok();
        let index = index.filter(|index| engine.link(*index).is_ok());
        index.ok_or_else(|| Errno::ENODEV.into())
    }

    fn kind(&self) -> Result<Option<&'a str>, Error> {
        self.attrs.str(TCA_KIND)
    }

    fn stab(&self) -> Result<Option<SizeTable>, Error> {
        let stab = self.attrs.get(TCA_STAB);
        stab.map(|stab| extras::parse_stab(&stab)).transpose()
    }

    fn estimator(&self) -> Result<Option<EstimatorSpec>, Error> {
        let rate = self.attrs.get(TCA_RATE);
        rate.map(|rate| extras::parse_estimator(&rate)).transpose()
    }
}

/// Answers `RTM_*QDISC`, `RTM_*TCLASS`, `RTM_*TFILTER` and `RTM_*CHAIN`.
pub(crate) fn request<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    if let RTM_NEWACTION..=RTM_GETACTION = request.kind {
        return actions::request(engine, request, replies);
    }
    let asked = Asked::read(request)?;
    if (RTM_NEWTFILTER..=RTM_GETTFILTER).contains(&request.kind)
        || (RTM_NEWCHAIN..=RTM_GETCHAIN).contains(&request.kind)
    {
        return filters::request(engine, &asked, replies);
    }
    let link = asked.link(engine)?;
    match request.kind {
        RTM_NEWQDISC => qdisc::modify(engine, link, &asked, replies),
        RTM_DELQDISC => qdisc::delete(engine, link, &asked, replies),
        RTM_GETQDISC => qdisc::get(engine, link, &asked, replies),
        RTM_NEWTCLASS | RTM_DELTCLASS | RTM_GETTCLASS => {
            class::request(engine, link, &asked, replies)
        }
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Dumps qdiscs, classes, filters or chains.
pub(crate) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    // Without a link there are no classes.
    if request.kind == RTM_GETTCLASS && request.header::<TcMsg>().is_err() {
        return Ok(Progress::Done);
    }
    if request.kind == RTM_GETACTION {
        return actions::dump(engine, request, position, chunk);
    }
    let asked = Asked::read(request)?;
    match request.kind {
        RTM_GETQDISC => qdisc::dump(engine, &asked, position, chunk),
        RTM_GETTCLASS => class::dump(engine, &asked, position, chunk),
        RTM_GETTFILTER | RTM_GETCHAIN => filters::dump(engine, &asked, position, chunk),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
