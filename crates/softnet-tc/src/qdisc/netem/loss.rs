//! Loss: each packet by itself, or by a state that stays for a while.

use super::random::{Correlated, Prng};

/// Model of loss. Probabilities are of 2^32 - 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LossModel {
    /// [`NetemSpec::loss`](super::NetemSpec), with its correlation.
    #[default]
    Random,
    /// A Markov chain with four states: received and lost within a burst, and outside of one
    /// (Salsano, Ludovici, Ordine: "Definition of a general and intuitive loss model for packet
    /// networks", 2012). The probabilities are those of going from state 1 to 3, 3 to 1, 3 to 2, 1
    /// to 4, and 2 to 3.
    State([u32; 5]),
    /// Gilbert and Elliot: a good state and a bad one. The probabilities are those of going from
    /// good to bad, from bad to good, of being received in the bad state, and of being lost in the
    /// good one.
    Gemodel([u32; 4]),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Received, and no burst of losses; or good.
    #[default]
    Gap,
    /// A single loss.
    Single,
    /// A loss in a burst; or bad.
    Burst,
    /// Received within a burst.
    Between,
}

/// A model and its state.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    model: LossModel,
    state: State,
}

impl Loss {
    pub(super) fn new(model: &LossModel) -> Loss {
        Loss {
            model: model.clone(),
            state: State::Gap,
        }
    }

    /// True if the next packet is lost. `probability` and `correlation` are those of
    /// [`LossModel::Random`].
    #[inline]
    pub(super) fn next(
        &mut self,
        probability: u32,
        correlation: &mut Correlated,
        prng: &mut Prng,
    ) -> bool {
        match self.model {
            LossModel::Random => correlation.happens(probability, prng),
            LossModel::State(of) => self.next_state(of, prng.next()),
            LossModel::Gemodel([to_bad, to_good, received, lost]) => {
                let was_bad = self.state == State::Burst;
                let moves = prng.next() < if was_bad { to_good } else { to_bad };
                if moves != was_bad {
                    self.state = State::Burst;
                } else {
                    self.state = State::Gap;
                }
                // The state before counts.
                let number = prng.next();
                if was_bad {
                    number > received
                } else {
                    number < lost
                }
            }
        }
    }

    /// `loss_4state`.
    fn next_state(&mut self, of: [u32; 5], number: u32) -> bool {
        let [p13, p31, p32, p14, p23] = of;
        self.state = match self.state {
            State::Gap if number < p14 => State::Single,
            State::Gap if number < p14.saturating_add(p13) => State::Burst,
            State::Gap | State::Single => State::Gap,
            State::Between if number < p23 => State::Burst,
            State::Between => State::Between,
            State::Burst if number < p32 => State::Between,
            State::Burst if number < p32.saturating_add(p31) => State::Gap,
            State::Burst => State::Burst,
        };
        matches!(self.state, State::Single | State::Burst)
    }
}
