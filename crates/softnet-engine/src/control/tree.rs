//! The trees of ports.

use softnet::time::Clock;
use softnet_tc::{DeviceTree, Handle, Live, SpecError, TreeSpec};

use super::{Control, ControlError, Devices};
use crate::Device;

impl<D: Devices> Control<D> {
    /// Changes the tree of a port. The caller tells those who watch.
    ///
    /// # Errors
    /// If there is no such port, or what `f` fails with. Nothing is changed then.
    pub fn edit_tree<T>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Live<'_, (&Device<D::Tx>, &Clock)>) -> Result<T, SpecError>,
    ) -> Result<T, ControlError> {
        let port = self.port(index)?;
        let (result, no_root) = self.engine.edit_tree(port, |tree| {
            let had_root = !tree.spec().is_empty();
            let result = f(tree)?;
            Ok((result, had_root && tree.spec().is_empty()))
        })?;
        if no_root && let Some(link) = self.links.get_mut(&index) {
            link.has_default = link.settings.up;
        }
        Ok(result)
    }

    /// Makes the tree of a port what `spec` says; see [`Live::apply`].
    ///
    /// # Errors
    /// If there is no such port, or the tree does not fit it. Nothing is changed then.
    pub fn set_tree(&mut self, index: u32, spec: &TreeSpec) -> Result<(), ControlError> {
        let before = self.read_tree(index, |tree, _| {
            (tree.spec() != spec).then(|| tree.spec().clone())
        })?;
        if let Some(before) = before {
            self.edit_tree(index, |tree| tree.apply(spec))?;
            self.note_tree(index, before);
        }
        Ok(())
    }

    /// The next handle for a qdisc of a port that is given none: of the numbers from 8001 to fffe,
    /// each is chosen once in this engine before one is chosen again, as in the kernel
    /// (`qdisc_alloc_handle`). [`Handle::NONE`] if the port uses all of them.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn choose_handle(&mut self, index: u32) -> Result<Handle, ControlError> {
        const NUMBERS: std::ops::Range<u16> = 0x8001..u16::MAX;
        let mut chosen = self.chosen;
        let handle = self.read_tree(index, |tree, _| {
            let free = |handle: &Handle| tree.spec().node(*handle).is_none();
            let next = std::iter::repeat_with(|| {
                chosen = if NUMBERS.contains(&(chosen + 1)) {
                    chosen + 1
                } else {
                    NUMBERS.start
                };
                Handle::new(chosen, 0)
            });
            next.take(NUMBERS.len()).find(free).unwrap_or(Handle::NONE)
        })?;
        self.chosen = chosen;
        Ok(handle)
    }

    /// Reads the tree of a port. No queue is taken from its owner.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn read_tree<T>(
        &self,
        index: u32,
        f: impl FnOnce(&DeviceTree, &[softnet::qdisc::QdiscStats]) -> T,
    ) -> Result<T, ControlError> {
        Ok(self.engine.read_tree(self.port(index)?, f)?)
    }
}
