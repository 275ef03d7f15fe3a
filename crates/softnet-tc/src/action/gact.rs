//! `gact`: a way on for packets, and another one for some of them (the kernel's `act_gact.c`).

use std::fmt;

use super::words::{Words, WordsError};
use super::{Control, Run, Tally};

/// Parameters: the way on itself is the action's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gact {
    /// Another way for some packets.
    pub random: Option<Random>,
}

/// Another way for some packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    /// True: by chance (`netrand`); false: each `every`-th packet (`determ`).
    pub by_chance: bool,
    /// The way.
    pub control: Control,
    /// One of so many packets; 0 counts as 1.
    pub every: u16,
}

impl Gact {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        let Some(random) = self.random else {
            return control;
        };
        let every = u64::from(random.every.max(1));
        let number = match random.by_chance {
            true => run.chance(),
            false => run.tally.next(Tally::EXTRA),
        };
        match number % every {
            0 => random.control,
            _ => control,
        }
    }

    pub(super) fn read_behind(words: &mut Words<'_>) -> Result<Gact, WordsError> {
        if !words.accept("random") {
            return Ok(Gact::default());
        }
        let by_chance = match words.next() {
            Some("netrand") => true,
            Some("determ") => false,
            _ => return Err(WordsError::new("random is netrand or determ")),
        };
        let control = words.control()?;
        let control = control.ok_or_else(|| WordsError::new("random lacks its action"))?;
        Ok(Gact {
            random: Some(Random {
                by_chance,
                control,
                every: words.number("random")?,
            }),
        })
    }

    pub(super) fn write(&self, control: Control, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{control}")?;
        match self.random {
            Some(Random {
                by_chance,
                control,
                every,
            }) => {
                let kind = if by_chance { "netrand" } else { "determ" };
                write!(f, " random {kind} {control} {every}")
            }
            None => Ok(()),
        }
    }
}
