//! Cutting slots, so that a range's ends fall between them.
//!
//! A slot that is cut once gets a split, and one that is cut twice gets a node. Either replaces the old
//! content by one store, with everything below it. A cut changes no page's mapping.

use faultless_frames::NoMemory;
use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::tree::edit::fill;
use crate::tree::node::{Node, index, span};
use crate::tree::retire::{free_nodes, retire_subtree};
use crate::tree::split::Split;
use crate::tree::value::{SlotState, SlotValue};
use crate::tree::{Edit, EditLocks, Subtree};

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Makes both ends of `pages` fall between slots.
    ///
    /// # Errors
    /// [`NoMemory`]; no page's mapping has changed.
    pub fn cut(&self, pages: Pages) -> Result<(), NoMemory> {
        self.cut_below(&self.stem.around(pages), pages)
    }

    /// The same below a node around `pages` ([`Subtree::around`]).
    ///
    /// # Errors
    /// The same.
    #[inline]
    pub(crate) fn cut_below(&self, near: &Subtree, pages: Pages) -> Result<(), NoMemory> {
        self.cut_at(near, pages.start, pages)?;
        self.cut_at(near, pages.end, pages)
            .inspect_err(|_| self.drop_cut(pages.start))
    }

    /// Cuts at `page`, an end of `pages`. If both ends are in the same slot, cuts at both.
    fn cut_at(&self, stem: &Subtree, page: u64, pages: Pages) -> Result<(), NoMemory> {
        if page >= self.stem.end() {
            return Ok(());
        }
        let mut node = stem.root();
        for level in (1..=stem.level).rev() {
            if page.is_multiple_of(span(level)) {
                return Ok(());
            }
            let number = index(page, level);
            let word = node.at(number).load();
            // SAFETY: the edit lock keeps what the tree holds from being retired.
            let instead = match unsafe { word.content() } {
                SlotState::Child(child) => {
                    node = child;
                    continue;
                }
                SlotState::Split(split) if split.middle() == page => return Ok(()),
                SlotState::Split(split) => {
                    let ([first, last], middle) = (split.words(), split.middle());
                    let (cuts, between) = match page < middle {
                        true => ([page, middle], first),
                        false => ([middle, page], last),
                    };
                    self.cut_twice(level, cuts, [first, between, last])?
                }
                _ => {
                    let base = page & !(span(level) - 1);
                    let is_inside = |at| at > base && at < base + span(level);
                    let ends = [pages.start, pages.end];
                    match ends[0] < ends[1] && ends.into_iter().all(is_inside) {
                        true => self.cut_twice(level, ends, [word; 3])?,
                        false => self.cut_once(page, [word; 2])?,
                    }
                }
            };
            node.put(number, instead);
            retire_subtree(self.memory, word);
            return Ok(());
        }
        Ok(())
    }

    /// Creates a split of a slot, with these values before and from `middle`.
    pub(super) fn cut_once(
        &self,
        middle: u64,
        words: [SlotValue; 2],
    ) -> Result<SlotValue, NoMemory> {
        let place = self.memory.allocate_split()?;
        // SAFETY: fresh memory of a split's size.
        Ok(SlotValue::split(unsafe {
            Split::create(place, middle, words)
        }))
    }

    /// Creates a node for a slot at `level` that is cut at two ascending pages, with these values before,
    /// between and behind.
    fn cut_twice(
        &self,
        level: usize,
        cuts: [u64; 2],
        words: [SlotValue; 3],
    ) -> Result<SlotValue, NoMemory> {
        let place = self.memory.allocate_node()?;
        let ([before, between, behind], below) = (words, level - 1);
        // SAFETY: fresh memory of a node's size.
        let at = unsafe { Node::create(place, behind) };
        // SAFETY: just made.
        let node = unsafe { at.as_ref() };
        let [first, last] = cuts.map(|page| index(page, below));
        node.put_all(0..first, before, &mut |_| ());
        node.put_all(first..last, between, &mut |_| ());
        let starts = cuts.map(|page| page.is_multiple_of(span(below)));
        let put = |number, word: Result<SlotValue, NoMemory>| -> Result<(), NoMemory> {
            // The node is not published yet.
            let word = word.inspect_err(|_| free_nodes(self.memory, at))?;
            node.put(number, word);
            Ok(())
        };
        if first == last && !starts[0] {
            put(first, self.cut_twice(below, cuts, words))?;
            return Ok(SlotValue::child(at));
        }
        if !starts[0] {
            put(first, self.cut_once(cuts[0], [before, between]))?;
        }
        if !starts[1] {
            put(last, self.cut_once(cuts[1], [between, behind]))?;
        }
        Ok(SlotValue::child(at))
    }

    /// Undoes a cut at `page`, if it cuts only a hole.
    #[cold]
    fn drop_cut(&self, page: u64) {
        let (mut node, mut level) = (self.stem.root(), self.stem.level);
        loop {
            // SAFETY: the edit lock is held.
            match unsafe { node.slot(page, level).load().content() } {
                SlotState::Child(child) => (node, level) = (child, level - 1),
                SlotState::Split(split) if split.words() == [SlotValue::EMPTY; 2] => {
                    let part = split.part(page, level);
                    return fill(self.memory, self.stem, part, SlotValue::EMPTY);
                }
                _ => return,
            }
        }
    }
}
