//! The verdict of an action on a packet that it has seen (`TC_ACT_*`, tc-actions(8)).

use std::fmt;

/// Value of `TC_ACT_JUMP`: the low 28 bits are a number.
const JUMP: u32 = 1 << 28;
/// Value of `TC_ACT_GOTO_CHAIN`.
const GOTO_CHAIN: u32 = 2 << 28;
/// The part of a value that says which of the two it is.
const EXTENDED: u32 = 0xf << 28;

/// The way that a packet goes behind an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Control {
    /// It goes to the filter's class.
    #[default]
    Pass,
    /// It is dropped.
    Drop,
    /// The next filter is tried; after `flower` and `matchall` the next priority's.
    Continue,
    /// It is classified again from the start. More than 16 times, together with
    /// [`Goto`](Control::Goto), and it is dropped.
    Reclassify,
    /// The next action sees it. Behind the last one it goes to the filter's class.
    Pipe,
    /// It is taken out, as if it had been sent (`TC_ACT_STOLEN`).
    Stolen,
    /// As [`Stolen`](Control::Stolen) (`TC_ACT_QUEUED`).
    Queued,
    /// The same action sees it again, 32 times at most (`TC_ACT_REPEAT`).
    Repeat,
    /// It is taken out. There is no program that it could be trapped to.
    Trap,
    /// It goes on in another chain. It is not classified where that has no filter that matches.
    Goto(u32),
    /// The filter's action of this number, from 0 on, sees it next. 32 times at most.
    Jump(u32),
}

impl Control {
    /// Controls of one word and one number. The first word is the one that is shown.
    const WORDS: [(&'static str, Control, i32); 12] = [
        ("pass", Control::Pass, 0),
        ("ok", Control::Pass, 0),
        ("drop", Control::Drop, 2),
        ("shot", Control::Drop, 2),
        ("continue", Control::Continue, -1),
        ("reclassify", Control::Reclassify, 1),
        ("pipe", Control::Pipe, 3),
        ("stolen", Control::Stolen, 4),
        ("queued", Control::Queued, 5),
        ("repeat", Control::Repeat, 6),
        ("trap", Control::Trap, 8),
        // The kernel reads it as one that lets pass (`TC_ACT_REDIRECT`, which only bpf has).
        ("redirect", Control::Pass, 7),
    ];
    /// The highest number behind [`Goto`](Control::Goto) and [`Jump`](Control::Jump)
    /// (`TC_ACT_EXT_VAL_MASK`).
    pub const MAX: u32 = !EXTENDED;

    /// The one that tc has this word for.
    pub fn from_word(word: &str) -> Option<Control> {
        let found = Control::WORDS.iter().find(|(of, ..)| *of == word);
        found.map(|&(_, control, _)| control)
    }

    /// The one of this number (`tcf_action_check_ctrlact`).
    pub fn from_raw(raw: i32) -> Option<Control> {
        if let Some(&(_, control, _)) = Control::WORDS.iter().find(|(.., of)| *of == raw) {
            return Some(control);
        }
        let bits = raw.cast_unsigned();
        match bits & EXTENDED {
            JUMP => Some(Control::Jump(bits & Control::MAX)),
            GOTO_CHAIN => Some(Control::Goto(bits & Control::MAX)),
            _ => None,
        }
    }

    /// Number of the control.
    pub fn raw(self) -> i32 {
        match self {
            Control::Jump(n) => (JUMP | n & Control::MAX).cast_signed(),
            Control::Goto(chain) => (GOTO_CHAIN | chain & Control::MAX).cast_signed(),
            _ => {
                let found = Control::WORDS.iter().find(|(_, of, _)| *of == self);
                found.map_or(0, |&(_, _, raw)| raw)
            }
        }
    }

    /// The chain that it leads to.
    pub fn chain(self) -> Option<u32> {
        match self {
            Control::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Control::Goto(chain) => write!(f, "goto chain {chain}"),
            Control::Jump(n) => write!(f, "jump {n}"),
            _ => {
                let found = Control::WORDS.iter().find(|(_, of, _)| of == self);
                f.write_str(found.map_or("", |(word, ..)| word))
            }
        }
    }
}
