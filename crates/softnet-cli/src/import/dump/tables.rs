//! The hash tables that `u32` filters of a dump are in and lead to, and their numbers here.

use std::collections::{BTreeMap, BTreeSet};

use softnet_rtnl::nl::{Attr, Errno, Error, NLA_HDRLEN};

use super::{OPTIONS, Object};

/// Options of `u32`.
const U32_HASH: u16 = 2;
const U32_LINK: u16 = 3;
const U32_DIVISOR: u16 = 4;
/// The part of a `u32` handle that names a table, the first that the kernel chooses, where that
/// part begins, and the part that names a filter in a bucket.
const TABLE: u32 = 0xfff0_0000;
const FIRST_TABLE: u32 = 0x8000_0000;
const TABLE_SHIFT: u32 = 20;
const NODE: u32 = 0xfff;

/// A list of filters: parent, chain, priority and protocol.
pub(super) type List = (u32, Vec<u8>, u32);

/// The hash tables of `u32` filters.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The one that each list begins with: no filter leads to it, and it was made before those
    /// that were asked for, whose numbers are chosen after it or by people.
    own: BTreeMap<List, u32>,
    /// The others, by parent and number, and the number that each has here.
    asked: BTreeMap<(u32, u32), u32>,
}

impl Tables {
    pub(super) fn of(dumped: &[Object]) -> Tables {
        let mut tables = Tables::default();
        let all = dumped.iter().filter(|of| of.divisor.is_some());
        let all: Vec<(List, u32)> = all
            .map(|of| (of.list(), of.header.handle & TABLE))
            .collect();
        let links = dumped.iter();
        let links = links.filter_map(|of| Some((of.header.parent, of.link? & TABLE)));
        let links: BTreeSet<(u32, u32)> = links.collect();
        for (list, table) in &all {
            if *table >= FIRST_TABLE {
                let first = tables.own.entry(list.clone()).or_insert(*table);
                let rank = |table: u32| (links.contains(&(list.0, table)), table);
                if rank(*table) < rank(*first) {
                    *first = *table;
                }
            }
        }
        let mut parents: BTreeMap<u32, (BTreeSet<List>, BTreeSet<u32>)> = BTreeMap::new();
        for (list, table) in all {
            if tables.own.get(&list) != Some(&table) {
                let (lists, numbers) = parents.entry(list.0).or_default();
                numbers.insert(table);
                lists.insert(list);
            }
        }
        for (parent, (lists, numbers)) in parents {
            // Numbers that the kernel chose, and, if several lists have tables, all of them could
            // be those that lists here begin with, which are counted up from the lowest.
            let stays = |number: u32| lists.len() == 1 && number < FIRST_TABLE;
            let free = (1..FIRST_TABLE >> TABLE_SHIFT).rev();
            let free = free.map(|number| number << TABLE_SHIFT);
            let mut free = free.filter(|&number| !(stays(number) && numbers.contains(&number)));
            for &number in &numbers {
                let here = match stays(number) {
                    true => Some(number),
                    false => free.next(),
                };
                if let Some(here) = here {
                    tables.asked.insert((parent, number), here);
                }
            }
        }
        tables
    }

    /// The number that a table has here which was asked for.
    fn number(&self, parent: u32, table: u32) -> Result<u32, Error> {
        let number = self.asked.get(&(parent, table & TABLE)).copied();
        let missing = || Error::new(Errno::EOPNOTSUPP).text("there is no such hash table");
        number.ok_or_else(missing)
    }

    /// Gives a filter or a table its place here; false: it stands for nothing.
    pub(super) fn place(&self, object: &mut Object) -> Result<bool, Error> {
        let parent = object.header.parent;
        let own = self.own.get(&object.list()).copied();
        if object.divisor.is_some() {
            let table = object.header.handle & TABLE;
            if own == Some(table) {
                return Ok(false);
            }
            object.header.handle = self.number(parent, table)?;
            return Ok(true);
        }
        object.header.handle &= NODE;
        // The table of its priority has another number here, and is meant by none.
        if let Some(table) = object.table {
            let hash = match own == Some(table & TABLE) {
                true => 0,
                false => self.number(parent, table)? | table & !TABLE,
            };
            object.set_option(U32_HASH, hash);
        }
        if let Some(link) = object.link.filter(|&link| link != 0) {
            let link = self.number(parent, link)?;
            object.set_option(U32_LINK, link);
        }
        Ok(true)
    }
}

impl Object {
    /// Notes which hash table a `u32` filter is in, or is itself.
    pub(super) fn note_tables(&mut self, options: &Attr<'_>) {
        for option in options.children() {
            let to = match option.kind() {
                U32_HASH => &mut self.table,
                U32_LINK => &mut self.link,
                U32_DIVISOR => &mut self.divisor,
                _ => continue,
            };
            *to = option.u32().ok();
        }
    }

    /// Has an option that is a number say another one.
    fn set_option(&mut self, kind: u16, value: u32) {
        let options = self.attributes.iter_mut().find(|(of, _)| *of == OPTIONS);
        let Some((_, options)) = options else { return };
        let mut at = 0;
        while let Some(&[a, b, c, d]) = options.get(at..).and_then(<[u8]>::first_chunk) {
            let length = usize::from(u16::from_ne_bytes([a, b]));
            let number = options.get_mut(at + NLA_HDRLEN..at + length);
            let number = number.and_then(|number| number.first_chunk_mut());
            if let Some(number) = number.filter(|_| u16::from_ne_bytes([c, d]) == kind) {
                *number = value.to_ne_bytes();
            }
            at += length.max(NLA_HDRLEN).next_multiple_of(4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::object;
    use super::super::{NEWFILTER, Policy, policy};
    use super::*;

    fn option(kind: u16, value: u32) -> Vec<u8> {
        let head = [8, kind].map(u16::to_ne_bytes).concat();
        [head, value.to_ne_bytes().to_vec()].concat()
    }

    /// A hash table of `u32` at 1: of a priority.
    fn table(prio: u32, handle: u32) -> Object {
        let mut table = object(NEWFILTER, "u32", handle, 0x10000);
        table.header.info = prio << 16;
        table.divisor = Some(1);
        table
    }

    /// A filter in a bucket of a table; it leads to another table unless that is 0.
    fn filter(prio: u32, handle: u32, link: u32) -> Object {
        let mut filter = object(NEWFILTER, "u32", handle, 0x10000);
        filter.header.info = prio << 16;
        // Something of an odd length is before them.
        let odd = [5_u16, 10].map(u16::to_ne_bytes).concat();
        let mut options = [odd, vec![1, 0, 0, 0]].concat();
        options.extend(option(U32_HASH, handle & !NODE));
        filter.table = Some(handle & !NODE);
        if link != 0 {
            options.extend(option(U32_LINK, link));
            filter.link = Some(link);
        }
        filter.attributes = vec![(OPTIONS, options)];
        filter
    }

    /// Handle, table with its bucket, and link of all that is asked for.
    fn asked(policy: &Policy) -> Vec<(u32, u32, u32)> {
        let number = |object: &Object, kind: u16| {
            let options = object.attributes[0].1.chunks_exact(8);
            let mut found = options.filter(|option| option[2..4] == kind.to_ne_bytes());
            let value = found.next().and_then(|option| option[4..].first_chunk());
            value.map_or(0, |value| u32::from_ne_bytes(*value))
        };
        let asked = policy.objects.iter();
        let asked = asked.map(|of| {
            let tables = (number(of, U32_HASH), number(of, U32_LINK));
            (of.header.handle, tables.0, tables.1)
        });
        asked.collect()
    }

    /// Tables come before filters. A number that somebody chose stays; one that the kernel chose
    /// could be that of another list here.
    #[test]
    fn tables_that_were_asked_for_come_with_their_links() {
        let head = Object {
            attributes: Vec::new(),
            ..object(NEWFILTER, "u32", 0, 0x10000)
        };
        let policy = policy(vec![
            head,
            filter(1, 0x8000_0801, 0),
            table(1, 0x8000_0000),
            table(2, 0x8020_0000),
            filter(2, 0x8020_5801, 0),
            table(2, 0x0010_0000),
            filter(2, 0x0010_0800, 0x8020_0000),
            table(2, 0x8010_0000),
            filter(2, 0x8010_0802, 0x0010_0000),
        ]);
        assert!(policy.refused.is_empty(), "{policy:?}");
        let expected = [
            (0x7ff0_0000, 0, 0),
            (0x0010_0000, 0, 0),
            (0x801, 0, 0),
            (0x801, 0x7ff0_5000, 0),
            (0x800, 0x0010_0000, 0x7ff0_0000),
            (0x802, 0, 0x0010_0000),
        ];
        assert_eq!(asked(&policy), expected);
    }

    #[test]
    fn tables_of_several_lists_get_numbers_of_no_list() {
        let policy = policy(vec![
            table(1, 0x8000_0000),
            table(1, 0x0010_0000),
            table(2, 0x8010_0000),
            table(2, 0x0020_0000),
            filter(2, 0x8010_0800, 0x0020_0000),
            filter(2, 0x8010_0801, 0x0030_0000),
        ]);
        let expected = [
            (0x7ff0_0000, 0, 0),
            (0x7fe0_0000, 0, 0),
            (0x800, 0, 0x7fe0_0000),
        ];
        assert_eq!(asked(&policy), expected);
        // There is no table 3:.
        assert_eq!(policy.refused.len(), 1, "{policy:?}");
    }

    /// Numbers that people chose, and those of the kernel after 2047 tables, may be lower than
    /// that of the table that the list begins with.
    #[test]
    fn no_list_begins_with_a_table_that_is_led_to() {
        let policy = policy(vec![
            table(1, 0x8010_0000),
            filter(1, 0x8010_0800, 0),
            table(1, 0x8020_0000),
            filter(1, 0x8020_0800, 0x8010_0000),
        ]);
        assert!(policy.refused.is_empty(), "{policy:?}");
        let expected = [
            (0x7ff0_0000, 0, 0),
            (0x800, 0x7ff0_0000, 0),
            (0x800, 0, 0x7ff0_0000),
        ];
        assert_eq!(asked(&policy), expected);
    }
}
