//! Chains of filters. They come and go with their filters, but for those that were made by
//! themselves, which may have a template of `flower`.

use softnet_engine::{Devices, Engine};
use softnet_tc::{ChainTemplate, FilterKey, FilterList};

use super::home::Home;
use super::{RTM_DELCHAIN, RTM_NEWCHAIN, Which, delete, flower, indev, kinds};
use crate::nl::headers::TcMsg;
use crate::nl::{Chunk, Errno, Error, Full, Message, NLM_F_CREATE, NLM_F_EXCL, Position, Replies};
use crate::tc::refusal;
use crate::tc::{Asked, RTNLGRP_TC, TCA_CHAIN, TCA_KIND, TCA_OPTIONS};

/// The parent is the qdisc, whichever class or hook of it the chain is at (`tc_chain_fill_node`).
fn header(home: Home) -> TcMsg {
    let (ifindex, parent) = match home {
        Home::Link(_, parent) => (home.names().0, parent.qdisc().raw()),
        Home::Block(_) => home.names(),
    };
    TcMsg {
        ifindex,
        parent,
        ..TcMsg::default()
    }
}

/// Writes a chain (`tc_chain_fill_node`).
fn put(chain: u32, template: Option<&ChainTemplate>, out: &mut Message<'_>) {
    out.put_u32(TCA_CHAIN, chain);
    if let Some(template) = template {
        out.put_str(TCA_KIND, "flower");
        flower::dump_template(template, out);
    }
}

/// Tells of a chain that comes or goes: whoever asked, no request is named (`tc_chain_notify`,
/// `tc_chain_notify_delete`).
pub(in crate::tc) fn tell(
    home: Home,
    kind: u16,
    chain: u32,
    template: Option<&ChainTemplate>,
    replies: &mut Replies,
) {
    let flags = match kind {
        RTM_NEWCHAIN => NLM_F_CREATE | NLM_F_EXCL,
        _ => 0,
    };
    replies.without_request(|replies| {
        replies.publish(RTNLGRP_TC, kind, flags, &header(home), |out| {
            put(chain, template, out);
        });
    });
}

/// The template of a chain that is to be (`tc_chain_tmplt_add`).
fn parse_template(which: &Which<'_>, asked: &Asked<'_>) -> Result<Option<ChainTemplate>, Error> {
    let Some(kind) = which.kind else {
        return Ok(None);
    };
    kinds::check_kind(kind)?;
    if kind != "flower" {
        let text = "Chain templates are not supported with specified classifier";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    let options = asked.attrs.get(TCA_OPTIONS).ok_or(Errno::EINVAL)?;
    flower::parse_template(&options).map(Some)
}

/// Answers a request that is not a dump (`tc_ctl_chain`).
pub(super) fn request<D: Devices>(
    engine: &Engine<D>,
    which: Which<'_>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let chain = which.key.chain;
    let (there, template) = which.home.read(engine, |view| {
        let list = view.list;
        Ok((list.has_chain(chain), list.template(chain).cloned()))
    })?;
    match (asked.request.kind, there) {
        (RTM_NEWCHAIN, true) => {
            let error = Error::new(Errno::EEXIST);
            Err(error.text("Filter chain already exists"))
        }
        (RTM_NEWCHAIN, false) => {
            let mut template = parse_template(&which, asked)?;
            if let Some(template) = &mut template {
                indev::find(engine, template.flower.indev.as_mut())?;
            }
            let own = template.clone();
            let made = match which.home {
                Home::Link(link, parent) => {
                    engine.edit_tree(link, |tree| tree.add_chain(parent, chain, own))
                }
                Home::Block(number) => {
                    engine.edit_block(number, |block| block.add_chain(chain, own))
                }
            };
            made.map_err(refusal::control)?;
            tell(which.home, RTM_NEWCHAIN, chain, template.as_ref(), replies);
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
            // It is gone already, and was told of, unless it was made by itself.
            let gone = match which.home {
                Home::Link(link, parent) => {
                    engine.edit_tree(link, |tree| tree.delete_chain(parent, chain))
                }
                Home::Block(number) => {
                    engine.edit_block(number, |block| block.delete_chain(chain))
                }
            };
            if gone.is_ok() {
                tell(which.home, RTM_DELCHAIN, chain, template.as_ref(), replies);
            }
            Ok(())
        }
        (_, true) => {
            let (flags, header) = (asked.request.flags, header(which.home));
            replies.message(RTM_NEWCHAIN, flags, &header, |out| {
                put(chain, template.as_ref(), out);
            })
        }
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
                put(chain, list.template(chain), out);
            })?;
        }
    }
    Ok(())
}
