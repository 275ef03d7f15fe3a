//! Keys of tables, each described once. From the description follow the reader, the writer, the
//! known keys in errors and the reference (`docs/configuration.md`).

use serde_json::Value as Json;
use softnet_tc::Unset;
use toml::Value;

use super::form::Form;
use super::table::{Item, Table};
use super::write::Writer;

/// A key of a table that describes a `T`.
pub(super) struct Key<T: 'static> {
    pub(super) name: &'static str,
    /// A sentence for the reference and the schema.
    pub(super) about: &'static str,
    /// Value if the key is not given.
    pub(super) unset: Unset,
    /// A wrong value, for the reference.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference"))]
    pub(super) wrong: &'static str,
    /// Object that a port's driver must make to have it; empty: every driver has it.
    pub(super) needs: &'static str,
    /// The value. `None`: it is read and written by hand.
    pub(super) field: Option<&'static (dyn Field<T> + Sync)>,
}

/// A value in a `T`.
pub(super) trait Field<T> {
    /// Reads it; false: this `T` has none.
    fn read(&self, target: &mut T, item: Item<'_>) -> bool;

    fn write(&self, of: &T) -> Option<Value>;

    /// The value's JSON schema.
    fn schema(&self) -> Json;
}

/// A place in a `T`, and the form of its value.
pub(super) struct At<T, V, F> {
    pub(super) place: fn(&mut T) -> Option<&mut V>,
    pub(super) form: F,
}

impl<T: Clone, V, F: Form<V>> Field<T> for At<T, V, F> {
    fn read(&self, target: &mut T, item: Item<'_>) -> bool {
        let Some(place) = (self.place)(target) else {
            return false;
        };
        if let Some(value) = self.form.read(item) {
            *place = value;
        }
        true
    }

    fn write(&self, of: &T) -> Option<Value> {
        let mut of = of.clone();
        (self.place)(&mut of).and_then(|value| self.form.write(value))
    }

    fn schema(&self) -> Json {
        self.form.schema()
    }
}

/// Keys of a `T`: for each its sentence, `"name": unset, wrong`, and unless it is read by hand
/// `=> form, place`.
macro_rules! keys {
    ($target:ty => $(
        $(#[doc = $about:literal])+
        $name:literal: $unset:expr, $wrong:literal $(, needs $needs:literal)?
            $(=> $form:expr, $place:expr)?;
    )*) => {
        &[$($crate::config::key::Key {
            name: $name,
            about: concat!($($about),+),
            unset: $unset,
            wrong: $wrong,
            needs: concat!($($needs)?),
            field: $crate::config::key::keys!(@ $target $(, $form, $place)?),
        }),*]
    };
    (@ $target:ty) => { None };
    (@ $target:ty, $form:expr, $place:expr) => {
        Some(&$crate::config::key::At::<$target, _, _> { place: $place, form: $form })
    };
}
pub(super) use keys;

/// Names of keys.
pub(super) fn names<T>(keys: &'static [Key<T>]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(|key| key.name)
}

/// Reads what a table has of the keys; those that are required must be there. `driver` is the
/// port's, if that is known.
pub(super) fn read<T>(keys: &[Key<T>], table: &Table<'_>, target: &mut T, driver: Option<&str>) {
    for key in keys {
        let item = table.find(key.name);
        if let (None, Unset::Required(what, _)) = (item, key.unset) {
            table.missing::<()>(key.name, what);
        }
        let (Some(field), Some(item)) = (key.field, item) else {
            continue;
        };
        // An empty list asks for nothing.
        if !field.read(target, item)
            && let Some(driver) = driver.filter(|_| !item.is_empty_list())
        {
            let what = key.needs;
            let text = format!("driver {driver:?} makes no {what} that could have it; remove it");
            item.problem::<()>(text);
        }
    }
}

/// Values that differ from `default`; all without that.
pub(super) fn values<T>(
    keys: &[Key<T>],
    of: &T,
    default: Option<&T>,
) -> impl Iterator<Item = (String, Value)> {
    keys.iter().filter_map(move |key| {
        let field = key.field?;
        let value = field.write(of)?;
        let is_default = default.and_then(|default| field.write(default)) == Some(value.clone());
        (!is_default).then(|| (key.name.to_owned(), value))
    })
}

/// Writes [`values`].
pub(super) fn write<T>(w: &mut Writer, keys: &[Key<T>], of: &T, default: Option<&T>) {
    values(keys, of, default).for_each(|(key, value)| w.put(&key, value));
}
