//! Chains of filters. They come and go with their filters.

use softnet_engine::{Devices, Engine};
use softnet_tc::{FilterKey, FilterList, Handle};

use super::{RTM_DELCHAIN, RTM_NEWCHAIN, Which, delete};
use crate::nl::headers::TcMsg;
use crate::nl::{Chunk, Errno, Error, Full, Position, Replies};
use crate::tc::place::Place;
use crate::tc::{Asked, RTNLGRP_TC, TCA_CHAIN};

fn header(link: u32, parent: Handle) -> TcMsg {
    TcMsg {
        ifindex: i32::try_from(link).unwrap_or(i32::MAX),
        parent: parent.raw(),
        ..TcMsg::default()
    }
}

/// Answers a request that is not a dump (`tc_ctl_chain`).
pub(super) fn request<D: Devices>(
    engine: &Engine<D>,
    which: Which<'_>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let chain = which.key.chain;
    let there = Place::read(engine, which.link, |place| {
        let list = which.list(&place)?;
        Ok::<_, Error>(list.one_each(chain, 0).next().is_some())
    })??;
    let header = header(which.link, which.parent);
    let flags = asked.request.flags;
    match (asked.request.kind, there) {
        (RTM_NEWCHAIN, true) => {
            let error = Error::new(Errno::EEXIST);
            Err(error.text("Filter chain already exists"))
        }
        (RTM_NEWCHAIN, false) => {
            let help = "chains come with their first filter; add that";
            Err(Error::new(Errno::EOPNOTSUPP).help(help))
        }
        (_, false) => Err(Error::invalid("Cannot find specified filter chain")),
        (RTM_DELCHAIN, true) => {
            let all = Which {
                key: FilterKey {
                    chain,
                    ..FilterKey::default()
                },
                protocol: 0,
                kind: None,
                ..which
            };
            delete(engine, all, asked, replies)?;
            replies.publish(RTNLGRP_TC, RTM_DELCHAIN, flags, &header, |out| {
                out.put_u32(TCA_CHAIN, chain);
            });
            Ok(())
        }
        (_, true) => replies.message(RTM_NEWCHAIN, flags, &header, |out| {
            out.put_u32(TCA_CHAIN, chain);
        }),
    }
}

/// Dumps chains. One that is gone before the next part makes that start anew.
pub(super) fn dump(
    list: &FilterList,
    link: u32,
    parent: Handle,
    only: Option<u32>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<(), Full> {
    let chains: Vec<u32> = list.chains().collect();
    let from = chains.iter().position(|&chain| chain == position.stage);
    let from = from.filter(|_| position.key != 0).unwrap_or(0);
    position.key = 1;
    for &chain in &chains[from..] {
        position.stage = chain;
        if only.is_none_or(|only| only == chain) {
            chunk.message(RTM_NEWCHAIN, 0, &header(link, parent), |out| {
                out.put_u32(TCA_CHAIN, chain);
            })?;
        }
    }
    Ok(())
}
