//! Part of a shared rate that one instance has.

use std::sync::Arc;

use softnet::time::Time;

use super::SharedRate;
use super::turns::{Demand, Members, Turn};
use super::word::{Draw, Lack, View};

/// Retry delay after losing the compare-and-swap many times, ns.
const AGAIN: u64 = 1000;

/// Units that an instance may draw at once, if there are so many.
#[derive(Clone, Copy, Debug)]
struct Share(u64);

/// Credit that one instance has drawn from a [`SharedRate`](super::SharedRate). Whatever is left
/// goes back when it is dropped. The units of one call are 2^40 at most.
///
/// It is used in one of two ways: [`reserve`](Pot::reserve), then [`spend`](Pot::spend) what was
/// reserved; or ask whether it [is ready](Pot::ready), send, and then [`charge`](Pot::charge) what
/// was sent, as the kernel's htb does. `weight` is how much this instance is to have, relative to
/// the others: the flows in its backlog.
///
/// In the second way the rate may be [lent](Pot::lend), besides, while others pay without asking;
/// and of two rates that the same has to pay for, one may go by the turns of the other
/// ([`ready_beside`](Pot::ready_beside)): with turns of their own, each could be waiting for the
/// other.
#[derive(Debug)]
pub struct Pot {
    credit: Credit,
    race: Race,
}

/// The credit of a pot.
#[derive(Debug)]
struct Credit {
    /// Credit in units; negative is debt.
    units: i64,
    /// The credit is not to be used before.
    ready: Time,
    /// Others came first when it was last looked, or nobody asked: it is looked again before more
    /// is sent that asks.
    must_look: bool,
    /// When it is looked again whether others come first.
    look: Time,
    /// Units in the bucket, as last seen.
    bucket: i64,
    /// The parameters as last seen.
    view: View,
    rate: Arc<SharedRate>,
}

/// Whose turn it is, as far as an instance knows.
#[derive(Debug)]
struct Race {
    turn: Turn,
    /// Lent units count, not all that are used.
    lends: bool,
    /// Units that were lent and are not yet counted.
    lent: u64,
    /// The credit when what was used was counted last.
    counted: i64,
    /// The quantum of what counts.
    grain: u64,
    rate: Arc<SharedRate>,
}

impl Pot {
    pub(super) fn new(rate: Arc<SharedRate>, instance: usize) -> Pot {
        assert!(instance < rate.turns.members().count());
        Pot {
            credit: Credit {
                units: 0,
                ready: Time::ZERO,
                must_look: false,
                look: Time::ZERO,
                bucket: 0,
                view: rate.word.view(),
                rate: rate.clone(),
            },
            race: Race {
                turn: Turn::new(instance),
                lends: false,
                lent: 0,
                counted: 0,
                grain: 0,
                rate,
            },
        }
    }

    /// The instances that share the rate.
    pub fn members(&self) -> &Members {
        self.race.rate.turns.members()
    }

    /// Which of them has this pot.
    pub fn instance(&self) -> usize {
        self.race.turn.instance()
    }

    /// Units of the longest packet, as the rate has it.
    pub fn unit(&self) -> u64 {
        self.credit.view.spec.unit
    }

    /// Units that are drawn and not used; negative if some are to be paid for.
    #[inline]
    pub fn credit(&self) -> i64 {
        self.credit.units
    }

    /// True if there is credit for so many units, without a look at the shared word.
    #[inline]
    pub fn covers(&self, units: u64, now: Time) -> bool {
        self.credit.covers(units, now)
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
        self.credit.wait(now)?;
        self.count();
        let demand = Demand::flows(weight);
        self.credit.refill(&mut self.race, true, units, demand, now)
    }

    /// True if there is credit for so many units now. As [`reserve`](Pot::reserve), but if there
    /// is none nothing is reserved.
    #[inline]
    pub fn has(&mut self, units: u64, weight: u16, now: Time) -> bool {
        if self.covers(units, now) || self.credit.wait(now).is_err() {
            return self.covers(units, now);
        }
        self.count();
        let demand = Demand::flows(weight);
        self.credit.fill(&mut self.race, units, demand, now)
    }

    /// Uses credit that is [there](Pot::covers).
    #[inline]
    pub fn spend(&mut self, units: u64) {
        self.credit.units -= units as i64;
    }

    /// Asks to send something now that is [charged](Pot::charge) or [lent](Pot::lend)
    /// afterwards.
    ///
    /// # Errors
    /// When to ask again.
    #[inline]
    pub fn ready(&mut self, demand: Demand, now: Time) -> Result<(), Time> {
        if self.covers(0, now) {
            return Ok(());
        }
        self.count();
        self.credit.ready(&mut self.race, true, demand, now)
    }

    /// As [`ready`](Pot::ready), by the turns of another rate, at which the same counts.
    ///
    /// # Errors
    /// When to ask again.
    #[inline]
    pub fn ready_beside(
        &mut self,
        other: &mut Pot,
        demand: Demand,
        now: Time,
    ) -> Result<(), Time> {
        if self.covers(0, now) {
            return Ok(());
        }
        other.count();
        self.credit.ready(&mut other.race, false, demand, now)
    }

    /// Pays for what was sent. Returns the time from which more may be sent. Without a demand it
    /// does not matter who comes first.
    #[inline]
    pub fn charge(&mut self, units: u64, demand: Demand, now: Time) -> Time {
        self.credit.units -= units as i64;
        if self.credit.units < 0 {
            self.count();
            self.credit.settle(&mut self.race, true, demand, now);
        }
        self.credit.next()
    }

    /// As [`charge`](Pot::charge), by the turns of another rate. What was lent of it is looked at
    /// more often.
    #[inline]
    pub fn charge_beside(
        &mut self,
        other: &mut Pot,
        units: u64,
        demand: Demand,
        now: Time,
    ) -> Time {
        self.credit.units -= units as i64;
        if self.credit.units < 0 || other.race.lends && self.credit.must_look {
            other.count();
            self.credit.settle(&mut other.race, false, demand, now);
        }
        self.credit.next()
    }

    /// Sets whether it is lent, or all that is sent is the instance's own.
    pub fn set_lends(&mut self, lends: bool) {
        self.leave();
        self.race.forgo(self.credit.units);
        self.race.lends = lends;
    }

    /// As [`charge`](Pot::charge), for what was sent with credit that was lent.
    pub fn lend(&mut self, units: u64, demand: Demand, now: Time) -> Time {
        self.credit.units -= units as i64;
        self.race.lent = self.race.lent.saturating_add(units);
        if self.credit.units < 0 || self.credit.must_look {
            self.count();
            self.credit.settle(&mut self.race, true, demand, now);
        }
        self.credit.next()
    }

    /// True if there is credit to be had, and what is lacking is the turn.
    pub fn waits_for_turn(&self, now: Time) -> bool {
        let credit = &self.credit;
        let unit = credit.view.spec.unit as i64;
        credit.must_look && (credit.ready..credit.look).contains(&now) && credit.bucket >= unit
    }

    /// Credit that may be used before anything has to be decided.
    #[inline]
    pub(crate) fn headroom(&self) -> u64 {
        match self.credit.must_look {
            true => 0,
            false => u64::try_from(self.credit.units).unwrap_or(0),
        }
    }

    /// Units here and in the bucket, as last seen.
    #[inline]
    pub(crate) fn seen(&self) -> i64 {
        self.credit.bucket.saturating_add(self.credit.units)
    }

    /// The part of what all instances have that is to be this one's, with this demand, in 1/65536.
    pub fn part(&self, demand: Demand, now: Time) -> u64 {
        self.race.turn.part(&self.race.rate.turns, demand, now)
    }

    /// Counts what was used, in the virtual time: what was used before the instance joined the
    /// race, too, since the last draw.
    fn count(&mut self) {
        let race = &mut self.race;
        if !race.turn.races() {
            return;
        }
        let used = race.counted - self.credit.units;
        race.counted = self.credit.units;
        let lent = std::mem::take(&mut race.lent);
        let counts = if race.lends { lent } else { used.max(0) as u64 };
        if counts > 0 {
            race.turn.advance(&race.rate.turns, counts);
        }
    }

    /// The instance has no backlog: the others need not leave it its share.
    #[inline]
    pub fn leave(&mut self) {
        if self.race.turn.races() {
            // Who leaves after each packet has used it all the same.
            self.count();
            self.race.turn.leave(&self.race.rate.turns);
        }
    }
}

impl Race {
    /// Leaves out what was used up to this credit.
    fn forgo(&mut self, units: i64) {
        (self.counted, self.lent) = (units, 0);
    }
}

impl Credit {
    #[inline]
    fn covers(&self, units: u64, now: Time) -> bool {
        self.units >= units as i64 && now >= self.ready && !self.must_look
    }

    /// When more may be sent.
    #[inline]
    fn next(&self) -> Time {
        match self.must_look {
            true => self.ready.max(self.look),
            false => self.ready,
        }
    }

    #[inline]
    fn ready(
        &mut self,
        race: &mut Race,
        own: bool,
        demand: Demand,
        now: Time,
    ) -> Result<(), Time> {
        self.wait_for_credit(now)?;
        if self.must_look && now < self.look && demand.prio >= race.turn.prio() {
            return Err(self.look);
        }
        self.refill(race, own, 0, demand, now)
    }

    /// Checks that the time has come that was waited for.
    fn wait(&mut self, now: Time) -> Result<(), Time> {
        self.wait_for_credit(now)?;
        match now < self.next() {
            true => Err(self.next()),
            false => Ok(()),
        }
    }

    /// Checks that the credit may be used. With other parameters the time for that is another.
    fn wait_for_credit(&mut self, now: Time) -> Result<(), Time> {
        if now < self.ready {
            let (view, clear) = self.rate.word.clear(now);
            if view.number != self.view.number {
                self.ready = self.ready.min(clear);
            }
            self.view = view;
        }
        match now < self.ready {
            true => Err(self.ready),
            false => Ok(()),
        }
    }

    #[cold]
    fn refill(
        &mut self,
        race: &mut Race,
        own: bool,
        units: u64,
        demand: Demand,
        now: Time,
    ) -> Result<(), Time> {
        match self.share(race, own, units, demand, now) {
            Some(share) => self.draw(race, own, units, share, Lack::Turn, now),
            None => return Err(self.next()),
        }
        match now < self.ready {
            true => Err(self.ready),
            false => Ok(()),
        }
    }

    #[cold]
    fn fill(&mut self, race: &mut Race, units: u64, demand: Demand, now: Time) -> bool {
        // Not its turn: whoever asks for it in earnest is told when.
        if let Some(share) = self.share(race, true, units, demand, now) {
            self.draw(race, true, units, share, Lack::Nothing, now);
        }
        self.covers(units, now)
    }

    #[cold]
    fn settle(&mut self, race: &mut Race, own: bool, demand: Demand, now: Time) {
        let share = self.share(race, own, 0, demand, now).unwrap_or(Share(0));
        self.draw(race, own, 0, share, Lack::Debt, now);
    }

    /// Units that may be drawn. While there is plenty nothing is shared out. `None`: others come
    /// first.
    fn share(
        &mut self,
        race: &mut Race,
        own: bool,
        units: u64,
        demand: Demand,
        now: Time,
    ) -> Option<Share> {
        let tokens = self.look(now);
        let spec = self.view.spec;
        (self.bucket, self.look) = (tokens, Time::ZERO);
        let missing = units as i64 - self.units;
        // What never fits waits for a full bucket, not for others that leave it full.
        let fits = tokens >= missing.min(spec.burst as i64);
        let plenty = fits && tokens > (spec.burst / 2) as i64;
        if plenty || demand.weight == 0 {
            if own && !race.turn.races() {
                race.forgo(self.units);
            }
            race.turn.waits_no_more();
            self.must_look = !plenty;
            return Some(Share(spec.quantum()));
        }
        match race
            .turn
            .check(&race.rate.turns, &spec, race.grain, demand, now)
        {
            Ok(units) => {
                self.must_look = false;
                Some(Share(units))
            }
            Err(look) => {
                (self.must_look, self.look) = (true, look);
                None
            }
        }
    }

    /// Draws what is missing to have so much, and up to a share if there is more: it fills the pot
    /// up to a quantum or to what is needed.
    fn draw(
        &mut self,
        race: &mut Race,
        own: bool,
        units: u64,
        share: Share,
        lack: Lack,
        now: Time,
    ) {
        let Ok(need @ 1..) = u64::try_from(units as i64 - self.units) else {
            return;
        };
        let before = self.units;
        let want = share.0.saturating_sub(u64::try_from(before).unwrap_or(0));
        let mut paid = 0;
        let drawn = match self.rate.word.draw(need, want, lack, now) {
            Draw::Granted(drawn) => {
                // All that was drawn before has come due; with other parameters, earlier.
                self.ready = self.ready.min(now);
                paid = drawn;
                drawn
            }
            Draw::Reserved(drawn, time) => {
                // A debt beyond a minute is forgiven.
                self.ready = time;
                paid = need;
                drawn
            }
            Draw::Lacking => 0,
            Draw::Refused(time) => {
                // So is this one; a turn is not reserved.
                self.ready = time;
                self.units = self.units.max(0);
                0
            }
            Draw::Contended => {
                self.ready = now.plus_nanos(AGAIN);
                0
            }
        };
        self.units += paid as i64;
        self.bucket -= drawn as i64;
        if own {
            race.counted += self.units - before;
            race.grain = self.view.spec.quantum();
        }
    }

    /// Tokens in the bucket.
    fn look(&mut self, now: Time) -> i64 {
        let (view, tokens) = self.rate.word.look(now);
        if view.number != self.view.number {
            // What waits may wait less.
            let _ = self.wait_for_credit(now);
            self.view = view;
        }
        tokens
    }
}

impl Drop for Pot {
    /// Pours back what is left.
    fn drop(&mut self) {
        self.leave();
        let credit = &mut self.credit;
        if let Ok(left @ 1..) = u64::try_from(credit.units) {
            credit.rate.word.pour_back(left);
        }
    }
}
