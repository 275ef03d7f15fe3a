//! The [page store](super::page_store) under loom: a page has one owner at a time, who sees what
//! the one before wrote. [The depot's models](super::models_pool) have the stack below it, and the
//! twin of that.

use std::sync::Arc;

use loom::thread;

use super::page_store::{PageStore, Pages};
use super::primitive::UnsafeCell;

/// Uses that loom watches.
#[derive(Default)]
struct Page(UnsafeCell<u32>);

fn use_one(pages: &mut Pages<Page>) -> bool {
    let has = pages.take(0);
    if let Some(page) = pages.get_mut(0) {
        // SAFETY: this `Pages` has borrowed it; loom checks that nobody else uses it.
        page.0.with_mut(|uses| unsafe { *uses += 1 });
    }
    pages.give_back(0);
    has
}

/// As many pages as owners, or one for both.
fn share(pages: usize) {
    loom::model(move || {
        let store = Arc::new(PageStore::new(pages));
        let mut mine = Pages::new(&store, 2);
        let mut others = Pages::new(&store, 1);
        let thread = thread::spawn(move || use_one(&mut others));
        let here = use_one(&mut mine);
        let there = thread.join().unwrap();
        assert!(pages == 1 || here && there, "as many pages as owners");
        assert!(here || there);
        let uses: Vec<u32> = (0..pages)
            .map(|place| {
                assert!(mine.take(place), "all have come back");
                let page = std::mem::take(mine.get_mut(place).unwrap());
                // SAFETY: as above.
                page.0.with_mut(|uses| unsafe { *uses })
            })
            .collect();
        assert_eq!(uses.iter().sum::<u32>(), u32::from(here) + u32::from(there));
    });
}

#[test]
fn two_owners_share_one_page() {
    share(1);
}

#[test]
fn two_owners_have_a_page_each() {
    share(2);
}
