//! `skbedit`: metadata of packets (tc-skbedit(8), the kernel's `act_skbedit.c`).

use std::fmt;

use super::words::{Words, WordsError, masked};
use super::{Control, Run};
use crate::handle::Handle;
use crate::qdisc::flow_hash;

/// Parameters, of which there is one at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skbedit {
    /// The priority.
    pub priority: Option<u32>,
    /// The mark.
    pub mark: Option<u32>,
    /// Which bits of the mark; `None`: all.
    pub mask: Option<u32>,
    /// The transmit queue.
    pub queue: Option<u16>,
    /// The last transmit queue, if a flow's hash chooses one of several.
    pub queue_max: Option<u16>,
    /// Type of packet (`skb->pkt_type`). It is shown, and means nothing here.
    pub ptype: Option<u16>,
    /// The priority becomes the DSCP.
    pub inheritdsfield: bool,
}

/// `PACKET_HOST` and so on.
const TYPES: [&str; 4] = ["host", "broadcast", "multicast", "otherhost"];

impl Skbedit {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        if let Some(priority) = self.priority {
            run.packet.set_priority(priority);
        }
        if self.inheritdsfield
            && let Some(class) = run.traffic_class()
        {
            run.packet.set_priority(u32::from(class >> 2));
        }
        if let Some(first) = self.queue {
            let behind = match self.queue_max {
                Some(last) => {
                    let queues = u32::from(last.saturating_sub(first)) + 1;
                    (flow_hash(run.packet) % queues) as u16
                }
                None => 0,
            };
            run.packet.set_queue(Some(first.saturating_add(behind)));
        }
        if let Some(mark) = self.mark {
            let mask = self.mask.unwrap_or(u32::MAX);
            let others = run.packet.mark() & !mask;
            run.packet.set_mark(others | mark & mask);
        }
        control
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        let Skbedit {
            priority,
            mark,
            mask,
            queue,
            queue_max,
            ptype,
            inheritdsfield,
        } = self;
        if queue_max.is_some_and(|last| queue.is_none_or(|first| last < first)) {
            return Err(WordsError::new("the range of queues ends before its start"));
        }
        match priority.is_none()
            && mark.is_none()
            && mask.is_none()
            && queue.is_none()
            && ptype.is_none()
            && !inheritdsfield
        {
            true => Err(WordsError::new("skbedit needs something to edit")),
            false => Ok(()),
        }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Skbedit, WordsError> {
        let mut edit = Skbedit::default();
        loop {
            match words.peek() {
                Some("priority") => {
                    words.next();
                    let read = |word: &str| word.parse::<Handle>().ok().map(Handle::raw);
                    edit.priority = Some(words.value("priority", read)?);
                }
                Some("mark") => {
                    words.next();
                    let (mark, mask) = words.value("mark", masked)?;
                    (edit.mark, edit.mask) = (Some(mark), mask);
                }
                Some("queue_mapping") => {
                    words.next();
                    if words.accept("skbhash") {
                        edit.queue = Some(words.number("queue_mapping")?);
                        edit.queue_max = Some(words.number("queue_mapping")?);
                    } else {
                        edit.queue = Some(words.number("queue_mapping")?);
                    }
                }
                Some("ptype") => {
                    words.next();
                    edit.ptype = Some(words.value("ptype", |word| {
                        let at = TYPES.iter().position(|of| *of == word);
                        at.map(|at| at as u16)
                    })?);
                }
                Some("inheritdsfield") => {
                    words.next();
                    edit.inheritdsfield = true;
                }
                _ => return Ok(edit),
            }
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("skbedit")?;
        match (self.queue, self.queue_max) {
            (Some(first), Some(last)) => write!(f, " queue_mapping skbhash {first} {last}")?,
            (Some(queue), None) => write!(f, " queue_mapping {queue}")?,
            _ => {}
        }
        if let Some(priority) = self.priority {
            write!(f, " priority {}", Handle::from_raw(priority))?;
        }
        match (self.mark, self.mask) {
            (Some(mark), Some(mask)) => write!(f, " mark {mark:#x}/{mask:#x}")?,
            (Some(mark), None) => write!(f, " mark {mark:#x}")?,
            _ => {}
        }
        if let Some(kind) = self.ptype.and_then(|at| TYPES.get(usize::from(at))) {
            write!(f, " ptype {kind}")?;
        }
        match self.inheritdsfield {
            true => f.write_str(" inheritdsfield"),
            false => Ok(()),
        }
    }
}
