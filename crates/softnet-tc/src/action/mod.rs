//! Actions: what happens to packets that filters match (tc-actions(8)).
//!
//! An [`ActionSpec`] is a kind's parameters and a [`Control`], the way on behind it. An [`Action`]
//! is one in use: filters have lists of them, may share them by their number, and an
//! [`ActionTable`] has all that are shared or were made for that.
//!
//! Each filter has counts of its own for its actions in each instance of its tree, which its
//! queue's owner writes; the action's statistics are their sum, with those of filters that are
//! gone. Only a rate is shared by all threads (see [`police`]), and the average that the control
//! path estimates (see [`ActionTable::sample_rates`]). Nothing here waits, locks or allocates for
//! a packet, but for copies of data that is shared with other packets.
//!
//! Each kind's file has its parameters, words and effect; what it is in messages is in
//! `softnet-rtnl`.
//!
//! Differences from the kernel: `simple` logs nothing; `ptype` of `skbedit` means nothing; what
//! `trap` takes out is dropped with a reason; a large frame counts as its wire packets, and what is
//! sent with its first VLAN tag; `pedit` and `csum` change what is in a frame's first segment; what
//! `vlan pop_eth` leaves has no headers for others.

mod control;
mod csum;
mod edit;
mod gact;
mod instance;
mod mirred;
mod pedit;
mod police;
mod simple;
mod skbedit;
mod skbmod;
mod table;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
mod vlan;
mod words;

pub use control::Control;
pub use csum::Csum;
pub use gact::{Gact, Random};
pub(crate) use instance::Tally;
pub use instance::{Action, ActionList, ActionStats};
pub use mirred::{Mirred, MirredTo};
pub use pedit::{Pedit, PeditHeader, PeditKey};
pub use police::Police;
pub use simple::Simple;
pub use skbedit::Skbedit;
pub use skbmod::Skbmod;
pub use table::{ActionError, ActionTable};
pub use vlan::{Tag, Vlan};
pub use words::WordsError;

use std::fmt;

use softnet::mem::Packet;
use softnet::qdisc::{Cx, Target, WireSize};
use softnet::wire::{self, Headers, Network};

use self::words::Words;
use crate::account::{EstimatorSpec, filtered_size};

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSpec {
    /// Kind and parameters.
    pub kind: ActionKind,
    /// The way on behind it; of `police`, that of packets above the rate.
    pub control: Control,
    /// Number among those of its kind; 0: one is chosen.
    pub index: u32,
    /// Up to 16 bytes that mean something to whoever made it.
    pub cookie: Vec<u8>,
    /// True if no hardware is to have it, which none has.
    pub skip_hw: bool,
    /// Other flags that are shown as they were given (`TCA_ACT_FLAGS_NO_PERCPU_STATS`).
    pub flags: u32,
    /// Way in which hardware would count (`TCA_ACT_HW_STATS`), which is shown; `None`: any.
    pub hw_stats: Option<u8>,
    /// Estimator of the rate of what it sees, which an average rate of `police` is held against.
    pub estimator: Option<EstimatorSpec>,
}

/// Kind of action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// A way on.
    Gact(Gact),
    /// A rate.
    Police(Police),
    /// Another link.
    Mirred(Mirred),
    /// Metadata.
    Skbedit(Skbedit),
    /// VLAN tags and Ethernet headers.
    Vlan(Vlan),
    /// Words of the frame.
    Pedit(Pedit),
    /// Checksums.
    Csum(Csum),
    /// Fields of the Ethernet header.
    Skbmod(Skbmod),
    /// A text.
    Simple(Simple),
}

impl ActionKind {
    /// The names of all kinds, as in tc.
    pub const NAMES: [&'static str; 9] = [
        "gact", "police", "mirred", "skbedit", "vlan", "pedit", "csum", "skbmod", "simple",
    ];

    /// tc's word for it.
    pub fn name(&self) -> &'static str {
        ActionKind::NAMES[self.number()]
    }

    fn number(&self) -> usize {
        match self {
            ActionKind::Gact(_) => 0,
            ActionKind::Police(_) => 1,
            ActionKind::Mirred(_) => 2,
            ActionKind::Skbedit(_) => 3,
            ActionKind::Vlan(_) => 4,
            ActionKind::Pedit(_) => 5,
            ActionKind::Csum(_) => 6,
            ActionKind::Skbmod(_) => 7,
            ActionKind::Simple(_) => 8,
        }
    }

    /// Parameters, in the words behind the action's name.
    fn read(name: &str, words: &mut Words<'_>) -> Result<ActionKind, WordsError> {
        Ok(match name {
            "gact" => ActionKind::Gact(Gact::default()),
            "police" => {
                let (police, exceed) = Police::read(words)?;
                words.say(exceed);
                ActionKind::Police(police)
            }
            "mirred" => ActionKind::Mirred(Mirred::read(words)?),
            "skbedit" => ActionKind::Skbedit(Skbedit::read(words)?),
            "vlan" => ActionKind::Vlan(Vlan::read(words)?),
            "pedit" => ActionKind::Pedit(Pedit::read(words)?),
            "csum" => ActionKind::Csum(Csum::read(words)?),
            "skbmod" => ActionKind::Skbmod(Skbmod::read(words)?),
            "simple" => ActionKind::Simple(Simple::read(words)?),
            other => {
                let names = ActionKind::NAMES.join(", ");
                let text = format!("{other:?} is no action; there are {names}");
                return Err(WordsError::new(text));
            }
        })
    }

    /// Parameters behind the way on.
    fn read_behind(&mut self, words: &mut Words<'_>) -> Result<(), WordsError> {
        if let ActionKind::Gact(gact) = self {
            *gact = Gact::read_behind(words)?;
        }
        Ok(())
    }

    /// The way on where none is named, as tc chooses it.
    pub fn default_control(&self) -> Control {
        match self {
            ActionKind::Gact(_) | ActionKind::Pedit(_) | ActionKind::Csum(_) => Control::Pass,
            ActionKind::Police(_) => Control::Reclassify,
            ActionKind::Mirred(mirred) => mirred.default_control(),
            ActionKind::Skbedit(_)
            | ActionKind::Vlan(_)
            | ActionKind::Skbmod(_)
            | ActionKind::Simple(_) => Control::Pipe,
        }
    }

    /// In words, with the way on, without what all kinds have.
    fn write(&self, control: Control, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Theirs has a place of its own.
            ActionKind::Gact(gact) => return gact.write(control, f),
            ActionKind::Police(police) => return police.write(control, f),
            ActionKind::Mirred(mirred) => mirred.write(f)?,
            ActionKind::Skbedit(skbedit) => skbedit.write(f)?,
            ActionKind::Vlan(vlan) => vlan.write(f)?,
            ActionKind::Pedit(pedit) => pedit.write(f)?,
            ActionKind::Csum(csum) => csum.write(f)?,
            ActionKind::Skbmod(skbmod) => skbmod.write(f)?,
            ActionKind::Simple(simple) => simple.write(f)?,
        }
        match control == self.default_control() {
            true => Ok(()),
            false => write!(f, " {control}"),
        }
    }
}

impl ActionSpec {
    /// The action of a kind, with tc's way on.
    pub fn new(kind: ActionKind) -> ActionSpec {
        ActionSpec {
            control: kind.default_control(),
            kind,
            index: 0,
            cookie: Vec::new(),
            skip_hw: false,
            flags: 0,
            hw_stats: None,
            estimator: None,
        }
    }

    /// Checks what parameters there may be.
    ///
    /// # Errors
    /// If a kind's parameters are none.
    pub fn check(&self) -> Result<(), WordsError> {
        if self.cookie.len() > 16 {
            return Err(WordsError::new("a cookie has 16 bytes at most"));
        }
        if self.lacks_estimator() {
            let text = "police with an avrate needs an estimator, like estimator 1s 8s";
            return Err(WordsError::new(text));
        }
        match &self.kind {
            ActionKind::Gact(gact) => match gact.random.map(|random| random.control.chain()) {
                Some(Some(_)) => Err(WordsError::new("goto chain not allowed on fallback")),
                _ => Ok(()),
            },
            ActionKind::Police(police) => police.check(),
            ActionKind::Mirred(_) => Ok(()),
            ActionKind::Skbedit(skbedit) => skbedit.check(),
            ActionKind::Vlan(vlan) => vlan.check(),
            ActionKind::Pedit(pedit) => pedit.check(),
            ActionKind::Csum(csum) => csum.check(),
            ActionKind::Skbmod(skbmod) => skbmod.check(),
            ActionKind::Simple(simple) => simple.check(),
        }
    }

    /// True if it is held against an average rate that nothing estimates.
    pub fn lacks_estimator(&self) -> bool {
        let has_average = matches!(&self.kind, ActionKind::Police(police) if police.avrate != 0);
        has_average && self.estimator.is_none()
    }

    /// The chains that it leads to.
    pub(crate) fn chains(&self) -> impl Iterator<Item = u32> {
        self.control.chain().into_iter()
    }
}

impl From<Control> for ActionSpec {
    fn from(control: Control) -> ActionSpec {
        ActionSpec {
            control,
            ..ActionSpec::new(ActionKind::Gact(Gact::default()))
        }
    }
}

/// A `gact` of its own.
impl From<Control> for Action {
    fn from(control: Control) -> Action {
        Action::new(control.into())
    }
}

/// One `gact`.
impl From<Control> for ActionList {
    fn from(control: Control) -> ActionList {
        ActionList::new([control.into()])
    }
}

impl FromIterator<Action> for ActionList {
    fn from_iter<T: IntoIterator<Item = Action>>(actions: T) -> ActionList {
        ActionList::new(actions)
    }
}

/// A packet's way through filters and their actions, whatever these make of it.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The size that it counts as, from when it came on (`qdisc_skb_cb(skb)->pkt_len`).
    pub(crate) size: WireSize,
    /// The place that the action that ends the way sends the packet itself to.
    pub(crate) moved: Option<Target>,
    /// EtherType of the Ethernet header that `vlan pop_eth` took away.
    bare: Option<[u8; 2]>,
}

impl InFlight {
    /// That of a packet that comes to the filters.
    #[inline]
    pub(crate) fn new(packet: &Packet, cx: &Cx) -> InFlight {
        InFlight {
            size: filtered_size(packet, cx),
            moved: None,
            bare: None,
        }
    }
}

/// An action on a packet.
struct Run<'a> {
    packet: &'a mut Packet,
    in_flight: &'a mut InFlight,
    cx: &'a mut Cx,
    action: &'a Action,
    tally: &'a Tally,
    /// True if the drop is counted.
    dropped: bool,
}

impl Run<'_> {
    /// As far as they are readable.
    fn headers(&self) -> Option<Headers> {
        let read = || wire::dissect(self.packet.data(), self.packet.len()).ok();
        self.packet.parse().ok().or_else(read)
    }

    /// That of an IP packet.
    fn traffic_class(&self) -> Option<u8> {
        let headers = self.headers()?;
        (headers.network != Network::Other).then_some(headers.traffic_class)
    }

    /// A number by chance, which no sender can foresee by the numbers of its own packets alone.
    fn chance(&self) -> u64 {
        let number = self.tally.next(Tally::EXTRA);
        let time = self.cx.now.nanos().rotate_left(32);
        let place = std::ptr::from_ref(self.tally).addr() as u64;
        wire::keyed_hash(time ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ place).into()
    }

    fn link(&self) -> Option<u32> {
        self.action.link()
    }
}

/// Jumps, and repetitions of one action, in one list.
const MAX_JUMPS: usize = ActionList::MAX;

/// The way of a packet behind a filter's actions (`tcf_action_exec`). It is two words, which stay
/// in registers: where the packet goes itself, if that is elsewhere, is in `in_flight`.
#[inline]
pub(crate) fn exec(
    actions: &ActionList,
    tallies: &[Tally],
    packet: &mut Packet,
    in_flight: &mut InFlight,
    cx: &mut Cx,
) -> Control {
    let actions = actions.as_slice();
    let (mut at, mut jumps) = (0, 0);
    while let (Some(action), Some(tally)) = (actions.get(at), tallies.get(at)) {
        match once(action, tally, packet, in_flight, cx) {
            Control::Pipe => at += 1,
            Control::Jump(to) => {
                let to = to as usize;
                jumps += 1;
                if to == 0 || to > actions.len() || jumps >= MAX_JUMPS {
                    return Control::Pass;
                }
                at = to;
            }
            other => return other,
        }
    }
    Control::Pipe
}

/// One action on a packet, which counts it.
#[inline]
fn once(
    action: &Action,
    tally: &Tally,
    packet: &mut Packet,
    in_flight: &mut InFlight,
    cx: &mut Cx,
) -> Control {
    for _ in 0..MAX_JUMPS {
        tally.count(in_flight.size, cx.now);
        let spec = action.spec();
        let control = match &spec.kind {
            // It needs the size only, and is not worth a call.
            ActionKind::Police(police) => {
                police.run(spec.control, action, tally, in_flight.size, cx)
            }
            _ => on_packet(action, tally, packet, in_flight, cx),
        };
        if control != Control::Repeat {
            return control;
        }
    }
    Control::Pass
}

/// An action that looks at the packet.
#[inline(never)]
fn on_packet(
    action: &Action,
    tally: &Tally,
    packet: &mut Packet,
    in_flight: &mut InFlight,
    cx: &mut Cx,
) -> Control {
    let control = action.spec().control;
    let mut run = Run {
        packet,
        in_flight,
        cx,
        action,
        tally,
        dropped: false,
    };
    let control = match &action.spec().kind {
        ActionKind::Gact(gact) => gact.run(control, &mut run),
        ActionKind::Mirred(mirred) => mirred.run(control, &mut run),
        ActionKind::Skbedit(skbedit) => skbedit.run(control, &mut run),
        ActionKind::Vlan(vlan) => vlan.run(control, &mut run),
        ActionKind::Pedit(pedit) => pedit.run(control, &mut run),
        ActionKind::Csum(csum) => csum.run(control, &mut run),
        ActionKind::Skbmod(skbmod) => skbmod.run(control, &mut run),
        // `police` does not come here.
        ActionKind::Police(_) | ActionKind::Simple(_) => control,
    };
    let counts_drops = matches!(
        action.spec().kind,
        ActionKind::Gact(_) | ActionKind::Csum(_)
    );
    if control == Control::Drop && counts_drops && !run.dropped {
        tally.add(Tally::DROPS, 1);
    }
    control
}
