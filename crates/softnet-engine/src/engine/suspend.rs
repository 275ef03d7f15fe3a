//! All devices closed at once, for another process that goes on with them.

use std::time::Duration;

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use crate::forward::Role;

/// Time between two looks at queues that run dry.
const LOOK: Duration = Duration::from_millis(1);

impl<D: Devices> Engine<D> {
    /// Stops receiving at all ports, lets transmit queues run dry for at most `drain`, drops and
    /// counts what is left, and closes the devices. Ports, trees and counters stay; what is sent is
    /// dropped until a device is [opened again](Engine::reopen_device). Returns the links whose
    /// devices were open.
    ///
    /// # Errors
    /// If a driver or a worker calls it. Nothing is changed then.
    pub fn suspend(&self, drain: Duration) -> Result<Vec<u32>, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let (mut numbers, mut closed) = (Vec::new(), Vec::new());
        for port in state.ports.iter().flatten() {
            if port.role == Role::Device
                && let Ok(link) = state.link(port.index)
                && link.open
            {
                numbers.push(link.number);
                closed.push(port.index);
            }
        }
        let opened: Vec<u32> = numbers.iter().map(|&n| state.slot(n).opened).collect();
        // First, so that what was received goes where it would have gone.
        state.close(&opened);
        let end = self.clock.now() + drain;
        let is_dry = || state.ports.iter().flatten().all(|p| p.device.is_empty());
        while !is_dry() && self.clock.now() < end {
            std::thread::sleep(LOOK);
        }
        let none = numbers
            .iter()
            .map(|&number| state.receiving(number, None, Vec::new()));
        let none = none.collect::<Result<Vec<_>, _>>()?;
        state.receive(none).map_err(|(_, error)| error)?;
        let mut rings = Vec::new();
        for &number in &numbers {
            let port = state.slot_mut(number);
            let (index, device) = (port.index, port.device.clone());
            let files = std::mem::take(&mut port.files);
            state.known_mut(index).open = false;
            state.unwatch_rings(files);
            device.deactivate()?;
            rings.extend(device.replace_rings(Vec::new())?);
        }
        self.devices.close(rings);
        for &number in &numbers {
            state.forget_learnt(number);
        }
        Ok(closed)
    }
}
