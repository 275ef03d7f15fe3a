//! What one instance has of a shared rate.

use std::sync::Arc;

use softnet::time::Time;

use super::epoch::{Draw, Epoch};
use super::turns::{Members, Turn, Turns};

/// Nanoseconds after which a draw is tried again that others were faster than many times.
const AGAIN: u64 = 1000;

/// What an instance may draw at once, if there is so much.
#[derive(Clone, Copy, Debug)]
struct Share {
    units: u64,
    /// It counts in the instance's virtual time.
    counts: bool,
}

impl Share {
    const NOTHING: Share = Share {
        units: 0,
        counts: true,
    };
}

/// Credit that one instance has drawn from a [`SharedRate`](super::SharedRate). Whatever is left
/// goes back when it is dropped.
///
/// It is used in one of two ways: [`reserve`](Pot::reserve), then [`spend`](Pot::spend) what was
/// reserved; or ask whether it [is ready](Pot::ready), send, and then [`charge`](Pot::charge) what
/// was sent, as the kernel's htb does. `weight` is how much this instance is to have, relative to
/// the others: the flows in its backlog.
#[derive(Debug)]
pub struct Pot {
    /// Units. Less than none: sent, and not yet paid for.
    credit: i64,
    /// The credit is not to be used before.
    ready: Time,
    /// Other instances came first when it was last looked.
    must_look: bool,
    turn: Turn,
    epoch: Arc<Epoch>,
    turns: Arc<Turns>,
}

impl Pot {
    pub(super) fn new(epoch: Arc<Epoch>, turns: Arc<Turns>, instance: usize) -> Pot {
        assert!(instance < turns.members().count());
        Pot {
            credit: 0,
            ready: Time::ZERO,
            must_look: false,
            turn: Turn::new(instance),
            epoch,
            turns,
        }
    }

    /// The instances that share the rate.
    pub fn members(&self) -> &Members {
        self.turns.members()
    }

    /// Which of them has this pot.
    pub fn instance(&self) -> usize {
        self.turn.instance()
    }

    /// Units of the longest packet, as the rate has it.
    pub fn unit(&self) -> u64 {
        self.epoch.spec().unit
    }

    /// Units that are drawn and not used; negative if some are to be paid for.
    #[inline]
    pub fn credit(&self) -> i64 {
        self.credit
    }

    /// Whether there is credit for so many units, without a look at the shared word.
    #[inline]
    pub fn covers(&self, units: u64, now: Time) -> bool {
        self.credit >= units as i64 && now >= self.ready && !self.must_look
    }

    /// Makes sure that there is credit for so many units. If there is none left, the turn is
    /// reserved: the units are drawn in advance, and may be spent from the time on that is
    /// returned.
    ///
    /// # Errors
    /// When to ask again, if it is not now. Nothing was spent.
    #[inline]
    pub fn reserve(&mut self, units: u64, weight: u16, now: Time) -> Result<(), Time> {
        if self.covers(units, now) {
            return Ok(());
        }
        self.wait(now)?;
        self.refill(units, weight, now)
    }

    /// Whether there is credit for so many units now. As [`reserve`](Pot::reserve), but if there
    /// is none nothing is reserved.
    #[inline]
    pub fn has(&mut self, units: u64, weight: u16, now: Time) -> bool {
        self.covers(units, now) || self.wait(now).is_ok() && self.fill(units, weight, now)
    }

    /// Uses credit that is [there](Pot::covers).
    #[inline]
    pub fn spend(&mut self, units: u64) {
        self.credit -= units as i64;
    }

    /// Whether something may be sent now that is [charged](Pot::charge) afterwards.
    ///
    /// # Errors
    /// When to ask again.
    #[inline]
    pub fn ready(&mut self, weight: u16, now: Time) -> Result<(), Time> {
        if self.covers(0, now) {
            return Ok(());
        }
        self.wait(now)?;
        self.refill(0, weight, now)
    }

    /// Pays for what was sent. Returns the time from which more may be sent.
    #[inline]
    pub fn charge(&mut self, units: u64, weight: u16, now: Time) -> Time {
        self.credit -= units as i64;
        if self.credit < 0 {
            self.settle(weight, now);
        }
        self.ready
    }

    /// The instance has no backlog: the others need not leave it its share.
    #[inline]
    pub fn leave(&mut self) {
        self.turn.leave(&self.turns);
    }

    /// Whether the time has come that was waited for. With other parameters it is another.
    fn wait(&mut self, now: Time) -> Result<(), Time> {
        if now < self.ready && self.epoch.look(now).is_none() {
            let clear = loop {
                match self.epoch.clear(now) {
                    Some(time) => break time,
                    None => self.follow(),
                }
            };
            self.ready = self.ready.min(clear);
        }
        match now < self.ready {
            true => Err(self.ready),
            false => Ok(()),
        }
    }

    #[cold]
    fn refill(&mut self, units: u64, weight: u16, now: Time) -> Result<(), Time> {
        let share = self.share(units, weight, now);
        self.must_look = share.is_err();
        match share {
            Ok(share) => self.draw(units, share, true, now),
            Err(time) => self.ready = time,
        }
        match now < self.ready {
            true => Err(self.ready),
            false => Ok(()),
        }
    }

    #[cold]
    fn fill(&mut self, units: u64, weight: u16, now: Time) -> bool {
        // Not its turn: whoever asks for it in earnest is told when.
        if let Ok(share) = self.share(units, weight, now) {
            self.must_look = false;
            self.draw(units, share, false, now);
        }
        self.covers(units, now)
    }

    #[cold]
    fn settle(&mut self, weight: u16, now: Time) {
        let share = self.share(0, weight, now);
        let units = *share.as_ref().unwrap_or(&Share::NOTHING);
        self.draw(0, units, true, now);
        if let Err(time) = share {
            self.must_look = true;
            self.ready = self.ready.max(time);
        }
    }

    /// How much may be drawn. While there is plenty nothing is shared out.
    fn share(&mut self, units: u64, weight: u16, now: Time) -> Result<Share, Time> {
        let tokens = self.tokens(now);
        let spec = self.epoch.spec();
        let missing = units as i64 - self.credit;
        if tokens >= missing && tokens > (spec.burst / 2) as i64 {
            return Ok(Share {
                units: spec.quantum(),
                counts: false,
            });
        }
        let units = self.turn.check(&self.turns, spec, weight, now)?;
        Ok(Share {
            units,
            counts: true,
        })
    }

    /// Draws what is missing to have so much, and up to a share if there is more.
    fn draw(&mut self, units: u64, share: Share, reserve: bool, now: Time) {
        let Ok(need @ 1..) = u64::try_from(units as i64 - self.credit) else {
            return;
        };
        let draw = loop {
            match self.epoch.draw(need, share.units, reserve, now) {
                Some(draw) => break draw,
                None => self.follow(),
            }
        };
        let drawn = match draw {
            Draw::Granted(drawn) => drawn,
            Draw::Reserved(time) => {
                self.ready = time;
                need
            }
            Draw::Refused(_) if !reserve => return,
            Draw::Refused(time) => {
                // A debt beyond a minute is forgiven, a turn is not reserved.
                self.ready = time;
                self.credit = self.credit.max(0);
                return;
            }
            Draw::Contended => {
                self.ready = now.plus_nanos(AGAIN);
                return;
            }
        };
        self.credit += drawn as i64;
        if share.counts {
            self.turn.advance(&self.turns, drawn);
        }
    }

    fn tokens(&mut self, now: Time) -> i64 {
        loop {
            match self.epoch.look(now) {
                Some(tokens) => return tokens,
                None => self.follow(),
            }
        }
    }

    /// Goes over to the epoch after this one, if there is one.
    fn follow(&mut self) {
        if let Some(next) = self.epoch.follow().cloned() {
            self.epoch = next;
        }
    }
}

impl Drop for Pot {
    /// Pours back what is left.
    fn drop(&mut self) {
        self.leave();
        if let Ok(left @ 1..) = u64::try_from(self.credit) {
            while !self.epoch.pour_back(left) {
                self.follow();
            }
        }
    }
}
