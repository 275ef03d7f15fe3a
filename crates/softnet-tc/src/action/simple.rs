//! `simple`: a text that is shown, for examples (the kernel's `act_simple.c`, which also logs it).

use std::fmt;

use super::words::{Words, WordsError};

/// Parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simple {
    /// The text, of 31 bytes at most.
    pub text: String,
}

impl Simple {
    pub(super) fn read(words: &mut Words<'_>) -> Result<Simple, WordsError> {
        words.accept("sdata");
        let text = words.quoted();
        let text = text.ok_or_else(|| WordsError::new("simple needs a text"))?;
        Ok(Simple { text: text.into() })
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        match self.text.len() > 31 || self.text.contains('"') {
            true => Err(WordsError::new(
                "the text of simple has 31 bytes at most, no quotes",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "simple sdata \"{}\"", self.text)
    }
}
