//! Things that a worker waits for or has in line.

/// A thing that a worker waits for or has in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Token {
    /// A receive queue, by index.
    Queue(usize),
    /// The link that a receive queue knows, by the queue's index.
    Link(usize),
    /// A transmit queue or its ring, by event.
    Ring(usize),
    /// The backlog.
    Backlog,
    /// Who has something to flood.
    Floods,
}

/// Bits of an index in a word; the two above tell what it is of.
const INDEX: u32 = usize::BITS - 2;

impl Token {
    /// The word by which a sleeper names what it watches. There are far fewer queues than a word
    /// has room for.
    pub(super) fn pack(self) -> usize {
        let (kind, index) = match self {
            Token::Queue(index) => (0, index),
            Token::Link(index) => (1, index),
            Token::Ring(event) => (2, event),
            Token::Backlog => (3, 0),
            Token::Floods => (3, 1),
        };
        kind << INDEX | index
    }

    /// The token of a [packed](Token::pack) word.
    pub(super) fn unpack(word: usize) -> Token {
        let index = word & ((1 << INDEX) - 1);
        match word >> INDEX {
            0 => Token::Queue(index),
            1 => Token::Link(index),
            2 => Token::Ring(index),
            _ if index == 0 => Token::Backlog,
            _ => Token::Floods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_token_is_unpacked() {
        for token in [
            Token::Queue(0),
            Token::Queue(70_000),
            Token::Link(3),
            Token::Ring(1023),
            Token::Backlog,
            Token::Floods,
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
