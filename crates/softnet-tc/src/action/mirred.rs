//! `mirred`: packets go to another link, or copies of them (tc-mirred(8), the kernel's
//! `act_mirred.c`). Who runs the filters carries it out.

use std::fmt;

use softnet::qdisc::{Target, To};

use super::words::{Words, WordsError};
use super::{Control, Run, Tally};

/// Parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirred {
    /// True: the packet goes there; false: a copy.
    pub redirects: bool,
    /// True: it arrives there; false: it leaves there.
    pub ingress: bool,
    /// The links.
    pub to: MirredTo,
}

/// Links that packets are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirredTo {
    /// The link of this name. As long as there is none, or none any more, what is redirected there
    /// is dropped.
    Dev(String),
    /// All links of a block.
    Block(u32),
}

impl Mirred {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        let to = match self.to {
            MirredTo::Dev(_) => run.link().map(To::Link),
            MirredTo::Block(block) => Some(To::Block(block)),
        };
        let ingress = self.ingress;
        let target = to.map(|to| Target { to, ingress });
        // As the kernel, one that goes elsewhere is moved, unless it is to go on, too.
        let moved = matches!(
            control,
            Control::Stolen | Control::Drop | Control::Queued | Control::Trap
        );
        match target {
            Some(target) if self.redirects && moved => {
                run.in_flight.moved = Some(target);
                return Control::Stolen;
            }
            Some(target) => {
                if let Some(copy) = run.packet.share(&run.cx.pool) {
                    run.cx.elsewhere.push_copy(target, copy);
                    return control;
                }
            }
            None => {}
        }
        run.tally.add(Tally::OVERLIMITS, 1);
        match self.redirects {
            true => Control::Drop,
            false => control,
        }
    }

    pub(super) fn default_control(&self) -> Control {
        match self.redirects {
            true => Control::Stolen,
            false => Control::Pipe,
        }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Mirred, WordsError> {
        let ingress = match words.next() {
            Some("egress") => false,
            Some("ingress") => true,
            _ => return Err(WordsError::new("mirred is egress or ingress")),
        };
        let redirects = match words.next() {
            Some("redirect") => true,
            Some("mirror") => false,
            _ => return Err(WordsError::new("mirred is redirect or mirror")),
        };
        let to = match words.next() {
            Some("dev") => MirredTo::Dev(words.value("dev", |word| Some(word.to_owned()))?),
            Some("blockid") => MirredTo::Block(words.number("blockid")?),
            _ => return Err(WordsError::new("mirred needs dev or blockid")),
        };
        Ok(Mirred {
            redirects,
            ingress,
            to,
        })
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.ingress { "ingress" } else { "egress" };
        let mode = if self.redirects { "redirect" } else { "mirror" };
        write!(f, "mirred {side} {mode} ")?;
        match &self.to {
            MirredTo::Dev(name) => write!(f, "dev {name}"),
            MirredTo::Block(block) => write!(f, "blockid {block}"),
        }
    }
}
