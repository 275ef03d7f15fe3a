//! The library's modules: apart from its root, which the lints cannot read.

#[macro_use]
#[path = "c.rs"]
pub(crate) mod c;
#[path = "exports.rs"]
pub(crate) mod exports;
#[path = "message.rs"]
pub(crate) mod message;
#[path = "names.rs"]
pub(crate) mod names;
#[path = "refused.rs"]
pub(crate) mod refused;
#[path = "route.rs"]
pub(crate) mod route;
