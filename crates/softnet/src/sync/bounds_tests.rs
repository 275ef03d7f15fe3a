//! Guards that may cross threads, checked by the compiler: a guard gives `&T`, so sharing it shares
//! the value. It may be `Sync` only if the value is, as a mutex's guard; `T: Send` is not enough.

use std::cell::Cell;

use super::*;

/// Fails to compile if the type has the trait: the two implementations are then both candidates.
macro_rules! assert_not {
    ($trait:ident: $($type:ty),+) => {
        const _: () = {
            trait Candidates<A> {
                fn only() {}
            }
            impl<T: ?Sized> Candidates<()> for T {}
            impl<T: ?Sized + $trait> Candidates<u8> for T {}
            $(let _ = <$type as Candidates<_>>::only;)+
        };
    };
}

assert_not!(Sync: RunGuard<'static, Cell<u8>>, OwnerGuard<'static, Cell<u8>>);
assert_not!(Sync: biased::ThiefGuard<'static, Cell<u8>>);
assert_not!(Send: RunGuard<'static, u8>, OwnerGuard<'static, u8>);

const fn assert_sync<T: Sync>() {}

const _: () = {
    assert_sync::<RunGuard<'static, u8>>();
    assert_sync::<OwnerGuard<'static, u8>>();
};
