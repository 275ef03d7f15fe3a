//! Chains of filters. They come and go with their filters, but for those that were made by
//! themselves. None has a template.

use softnet_engine::{Devices, Engine};
use softnet_tc::{FilterKey, FilterList};

use super::home::Home;
use super::{RTM_DELCHAIN, RTM_NEWCHAIN, Which, delete};
use crate::nl::headers::TcMsg;
use crate::nl::{Chunk, Errno, Error, Full, Position, Replies};
use crate::tc::refusal;
use crate::tc::{Asked, RTNLGRP_TC, TCA_CHAIN};

fn header(home: Home) -> TcMsg {
    let (ifindex, parent) = home.names();
    TcMsg {
        ifindex,
        parent,
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
    let there = which
        .home
        .read(engine, |view| Ok(view.list.chains().any(|of| of == chain)))?;
    let header = header(which.home);
    let flags = asked.request.flags;
    match (asked.request.kind, there) {
        (RTM_NEWCHAIN, true) => {
            let error = Error::new(Errno::EEXIST);
            Err(error.text("Filter chain already exists"))
        }
        (RTM_NEWCHAIN, false) => {
            if which.kind.is_some() {
                let help = "chains have no templates here; make the chain without one";
                return Err(Error::new(Errno::EOPNOTSUPP).help(help));
            }
            let made = match which.home {
                Home::Link(link, parent) => {
                    engine.edit_tree(link, |tree| tree.add_chain(parent, chain))
                }
                Home::Block(number) => engine.edit_block(number, |block| block.add_chain(chain)),
            };
            made.map_err(refusal::control)?;
            replies.publish(RTNLGRP_TC, RTM_NEWCHAIN, flags, &header, |out| {
                out.put_u32(TCA_CHAIN, chain);
            });
            Ok(())
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
            // It is gone already, unless it was made by itself.
            let _ = match which.home {
                Home::Link(link, parent) => {
                    engine.edit_tree(link, |tree| tree.delete_chain(parent, chain))
                }
                Home::Block(number) => {
                    engine.edit_block(number, |block| block.delete_chain(chain))
                }
            };
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
    home: Home,
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
            chunk.message(RTM_NEWCHAIN, 0, &header(home), |out| {
                out.put_u32(TCA_CHAIN, chain);
            })?;
        }
    }
    Ok(())
}
