//! The answer to a refused request.

use std::borrow::Cow;
use std::fmt;

/// A number of `errno.h`, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs, reason = "the names are errno.h's")]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(number) => write!(f, "errno {number}"),
                }
            }
        }
    };
}

errnos! {
    E2BIG EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EBADMSG EBUSY ECONNREFUSED EEXIST EFAULT
    EINVAL EIO ELOOP EMSGSIZE ENETDOWN ENETUNREACH ENOBUFS ENODATA ENODEV ENOENT ENOMEM ENOPROTOOPT
    ENOSPC ENOSYS ENXIO EOPNOTSUPP EOVERFLOW EPERM EPROTONOSUPPORT ERANGE ESRCH EXDEV
}

/// A refusal: the kernel's errno, and where it has them, its text and the attribute meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The errno with which the client's call fails.
    pub errno: Errno,
    /// `NLMSGERR_ATTR_MSG`: the kernel's text first, help after it.
    pub text: Option<Cow<'static, str>>,
    /// `NLMSGERR_ATTR_OFFS`: where in the request the attribute starts that is wrong.
    pub offset: Option<u32>,
    /// `NLMSGERR_ATTR_MISS_TYPE`: type of the attribute that is missing.
    pub missing: Option<u32>,
    /// `NLMSGERR_ATTR_MISS_NEST`: offset of the nest that it is missing from; the message's own
    /// attributes if none.
    pub missing_from: Option<u32>,
}

impl Error {
    /// A refusal without text.
    pub const fn new(errno: Errno) -> Error {
        Error {
            errno,
            text: None,
            offset: None,
            missing: None,
            missing_from: None,
        }
    }

    /// `EINVAL` with the kernel's text.
    pub const fn invalid(text: &'static str) -> Error {
        Error {
            errno: Errno::EINVAL,
            text: Some(Cow::Borrowed(text)),
            offset: None,
            missing: None,
            missing_from: None,
        }
    }

    /// With the kernel's text.
    pub fn text(mut self, text: impl Into<Cow<'static, str>>) -> Error {
        self.text = Some(text.into());
        self
    }

    /// With what the user can do about it, as a sentence after the kernel's text.
    pub fn help(mut self, help: impl fmt::Display) -> Error {
        self.text = Some(match self.text {
            Some(text) => format!("{}. {help}", text.trim_end_matches('.')).into(),
            None => help.to_string().into(),
        });
        self
    }

    /// With the attribute that is wrong; the innermost one, if several callers name one.
    pub fn at(mut self, attr: &super::Attr<'_>) -> Error {
        self.offset.get_or_insert(attr.offset);
        self
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{text} ({:?})", self.errno),
            None => write!(f, "{:?}", self.errno),
        }
    }
}

impl std::error::Error for Error {}
