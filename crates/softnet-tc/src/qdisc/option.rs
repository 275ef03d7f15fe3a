//! Options of qdiscs, each described once. From the description follow the reader and the writer of
//! configuration files, the reference (`docs/configuration.md`) and the regular attributes of
//! rtnetlink.
//!
//! A kind lists its options with [`options!`], beside its parameters: the sentence for the
//! reference, the name, the [`Form`] of the text, and the [`Field`] of the parameters. What the
//! form cannot say is read and written by hand ([`Form::Own`]). Relations between options are
//! checked by the reader, ranges by [`QdiscSpec::check`].

use std::time::Duration;

use super::class::ClassSpec;
use super::kind::QdiscSpec;

/// An option of a kind of qdisc.
pub type QdiscOption = SpecOption<QdiscSpec>;
/// An option of a class that is added.
pub type ClassOption = SpecOption<ClassSpec>;

/// An option of something with parameters `S`.
#[derive(Debug)]
pub struct SpecOption<S> {
    /// Name, as in tc.
    pub name: &'static str,
    /// A sentence for the reference.
    pub about: &'static str,
    /// Form of its text in configuration files.
    pub form: Form,
    /// Default if it is not given.
    pub unset: Unset,
    /// A wrong value for the reference; where empty, the form's.
    pub wrong: &'static str,
    /// Attribute, if the kind has regular ones.
    pub attr: Option<Attribute>,
    /// Parameter. `None`: it is read by hand, or the parameters are those of another kind.
    pub field: fn(&mut S) -> Option<Field<'_>>,
}

impl<S> SpecOption<S> {
    /// Values of the fields that an option's line leaves out.
    pub(crate) const DEFAULT: SpecOption<S> = SpecOption {
        name: "",
        about: "",
        form: Form::Own,
        unset: Unset::Value,
        wrong: "",
        attr: None,
        field: |_| None,
    };
}

/// The form of an option's text. A text of words says what is expected, for messages.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A size in bytes, or a number of packets: `"32k"` is 32,768.
    Size,
    /// A rate: bytes a second as a number, bits a second as a text.
    Rate,
    /// A time in nanoseconds.
    Time,
    /// A probability in percent, of 2^32 - 1.
    Percent,
    /// `true` or `false`.
    Flag,
    /// A number, and its bounds.
    Number(&'static str, u64, u64),
    /// A power of 2, and its bounds.
    PowerOf2(&'static str, u64, u64),
    /// A mask of 32 bits.
    Mask(&'static str),
    /// A list of numbers, or a text with them.
    List(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Read and written by hand.
    Own,
}

/// Default of an option that is not given.
#[derive(Clone, Copy, Debug)]
pub enum Unset {
    /// The value in the kind's default parameters.
    Value,
    /// Something that is no value of its own: in words.
    Words(&'static str),
    /// It must be given: what to add, for messages, and a value, for the reference's test.
    Required(&'static str, &'static str),
}

/// An attribute of rtnetlink with one number.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Type.
    pub kind: u16,
    /// Payload.
    pub wire: Wire,
    /// A number that is given is brought within these.
    pub within: (u32, u32),
    /// Number that is shown where the parameter has no value.
    pub absent: Absent,
}

impl Attribute {
    pub(crate) const fn new(kind: u16, wire: Wire) -> Attribute {
        Attribute {
            kind,
            wire,
            within: (0, u32::MAX),
            absent: Absent::Hidden,
        }
    }

    pub(crate) const fn within(mut self, least: u32, most: u32) -> Attribute {
        self.within = (least, most);
        self
    }

    pub(crate) const fn absent(mut self, shown: Absent) -> Attribute {
        self.absent = shown;
        self
    }
}

/// The payload of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The number in 32 bits. Of a power of 2, the exponent.
    U32,
    /// The number in 8 bits.
    U8,
    /// Microseconds in 32 bits.
    Micros,
    /// Microseconds in 32 bits, shown as the kernel does that counts units of 1,024 ns.
    CodelMicros,
    /// Microseconds in 32 bits, shown as the kernel does that counts units of 64 ns.
    TickMicros,
    /// A structure of the kind's own, of so many bytes.
    Own(usize),
}

/// Number that is shown of a parameter without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nothing.
    Hidden,
    /// The highest number, which also takes the value away.
    Highest,
    /// So many of the link's longest frames.
    Frames(u32),
}

/// A parameter of a qdisc, to read and to change.
#[derive(Debug)]
#[allow(missing_docs, reason = "names say it")]
pub enum Field<'a> {
    U16(&'a mut u16),
    U32(&'a mut u32),
    U64(&'a mut u64),
    OptU32(&'a mut Option<u32>),
    OptU64(&'a mut Option<u64>),
    Time(&'a mut Duration),
    OptTime(&'a mut Option<Duration>),
    Flag(&'a mut bool),
    /// The exponent of a power of 2.
    Log2(&'a mut u8),
    List8(&'a mut [u8]),
    List32(&'a mut [u32]),
    /// The place of a word.
    Word(&'a mut dyn Word),
}

/// A parameter that is one of a few words.
pub trait Word: std::fmt::Debug {
    /// The place of its word among all.
    fn place(&self) -> usize;

    /// Makes it the word of this place, if there is one. False: there is none.
    #[must_use]
    fn set_place(&mut self, place: usize) -> bool;
}

impl Field<'_> {
    /// The number; a time in nanoseconds. `None`: it has no value, or is a list.
    pub fn number(&self) -> Option<u64> {
        let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Field::U16(n) => Some(u64::from(**n)),
            Field::U32(n) => Some(u64::from(**n)),
            Field::U64(n) => Some(**n),
            Field::OptU32(n) => n.map(u64::from),
            Field::OptU64(n) => **n,
            Field::Time(time) => Some(nanos(time)),
            Field::OptTime(time) => time.as_ref().map(nanos),
            Field::Flag(flag) => Some(u64::from(**flag)),
            Field::Log2(log) => 1_u64.checked_shl(u32::from(**log)),
            Field::Word(word) => Some(word.place() as u64),
            Field::List8(_) | Field::List32(_) => None,
        }
    }

    /// Sets the number.
    ///
    /// # Errors
    /// The highest number that the parameter can have.
    pub fn set(self, number: u64) -> Result<(), u64> {
        fn narrow<T: TryFrom<u64> + From<u16>>(number: u64, most: u64) -> Result<T, u64> {
            T::try_from(number).map_err(|_| most)
        }
        let small = |number| narrow::<u32>(number, u32::MAX.into());
        match self {
            Field::U16(n) => *n = narrow(number, u16::MAX.into())?,
            Field::U32(n) => *n = small(number)?,
            Field::U64(n) => *n = number,
            Field::OptU32(n) => *n = Some(small(number)?),
            Field::OptU64(n) => *n = Some(number),
            Field::Time(time) => *time = Duration::from_nanos(number),
            Field::OptTime(time) => *time = Some(Duration::from_nanos(number)),
            Field::Flag(flag) => *flag = number != 0,
            Field::Log2(log) => *log = number.checked_ilog2().unwrap_or(0) as u8,
            Field::Word(word) => {
                let place = usize::try_from(number).unwrap_or(usize::MAX);
                if !word.set_place(place) {
                    return Err(0);
                }
            }
            Field::List8(_) | Field::List32(_) => return Err(0),
        }
        Ok(())
    }

    /// Takes the value away, where it may be absent.
    pub fn clear(self) {
        match self {
            Field::OptU32(n) => *n = None,
            Field::OptU64(n) => *n = None,
            Field::OptTime(time) => *time = None,
            _ => {}
        }
    }

    /// The numbers of a list.
    pub fn list(&self) -> Vec<u32> {
        match self {
            Field::List8(list) => list.iter().copied().map(u32::from).collect(),
            Field::List32(list) => list.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Sets a list. False: it has not as many numbers, or one is too large.
    #[must_use]
    pub fn set_list(self, numbers: &[u32]) -> bool {
        match self {
            Field::List8(list) => {
                let small: Vec<u8> = numbers.iter().filter_map(|&n| n.try_into().ok()).collect();
                let fits = small.len() == numbers.len() && small.len() == list.len();
                if fits {
                    list.copy_from_slice(&small);
                }
                fits
            }
            Field::List32(list) if list.len() == numbers.len() => {
                list.copy_from_slice(numbers);
                true
            }
            _ => false,
        }
    }
}

macro_rules! fields {
    ($($type:ty => $field:ident,)*) => {
        $(impl<'a> From<&'a mut $type> for Field<'a> {
            fn from(of: &'a mut $type) -> Field<'a> {
                Field::$field(of)
            }
        })*
    };
}
fields! {
    u16 => U16,
    u32 => U32,
    u64 => U64,
    Option<u32> => OptU32,
    Option<u64> => OptU64,
    Duration => Time,
    Option<Duration> => OptTime,
    bool => Flag,
    u8 => Log2,
    [u8; 16] => List8,
    [u32; 3] => List32,
}

/// An enumeration of which each has a word in configuration files, in the order of the kernel's
/// numbers.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All, in the order of the kernel's numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// Words, as in tc.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
        }

        impl $crate::qdisc::option::Word for $name {
            fn place(&self) -> usize {
                *self as usize
            }

            fn set_place(&mut self, place: usize) -> bool {
                let found = $name::ALL.get(place);
                *self = *found.unwrap_or(self);
                found.is_some()
            }
        }

        impl<'a> From<&'a mut $name> for $crate::qdisc::option::Field<'a> {
            fn from(of: &'a mut $name) -> Self {
                $crate::qdisc::option::Field::Word(of)
            }
        }
    };
}
pub(crate) use words;

/// Parameters with their defaults: a struct and its `Default`.
macro_rules! parameters {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $value:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $value,)* }
            }
        }
    };
}
pub(crate) use parameters;

/// A kind's options: for each its sentence, `"name": form => parameter`, and what else is to be
/// said of it, as fields of [`SpecOption`]. The parameters are bound by the pattern in front.
macro_rules! options {
    ($spec:ident::$kind:ident $bound:tt => $(
        $(#[doc = $about:literal])+
        $name:literal: $form:expr $(=> $field:expr)? $(; $key:ident = $value:expr)*,
    )*) => {
        {
            #[allow(clippy::needless_update, reason = "some options say everything")]
            const OPTIONS: &[$crate::qdisc::SpecOption<$spec>] = &[$($crate::qdisc::SpecOption {
                name: $name,
                about: concat!($($about),+),
                form: $form,
                $(field: |spec| match spec {
                    $spec::$kind $bound => Some((&mut $field).into()),
                    #[allow(unreachable_patterns, reason = "there may be one kind")]
                    _ => None,
                },)?
                $($key: $value,)*
                ..$crate::qdisc::SpecOption::DEFAULT
            }),*];
            OPTIONS
        }
    };
}
pub(crate) use options;
