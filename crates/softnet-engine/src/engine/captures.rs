//! Captures of ports, started and ended while packets flow.

use std::sync::Arc;

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::State;
use crate::capture::{Capture, CaptureError, CaptureSpec, MOST};
use crate::rx::Command;

impl<D: Devices> Engine<D> {
    /// Captures packets of a port from now on, until the capture is
    /// [ended](Engine::end_capture) or the port is removed. Waits for the workers' rounds.
    ///
    /// # Errors
    /// If there is no such port, there are too many captures, or there is no memory.
    pub fn capture(&self, index: u32, spec: CaptureSpec) -> Result<Arc<Capture>, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let number = state.number(index)?;
        let running = state.ports.iter().flatten();
        if running.map(|port| port.captures.0.len()).sum::<usize>() >= MOST {
            return Err(CaptureError::TooMany.into());
        }
        let capture = Capture::new(spec, number, state.clock.clone());
        let capture = Arc::new(capture.map_err(CaptureError::from)?);
        state.slot_mut(number).captures.0.push(capture.clone());
        state.follow_captures(number)?;
        Ok(capture)
    }

    /// Ends a capture. Nothing is captured any more when this returns.
    ///
    /// # Errors
    /// If a driver, a qdisc or an action calls this.
    pub fn end_capture(&self, capture: &Arc<Capture>) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        capture.end();
        let number = (0..).zip(&mut state.ports).find_map(|(number, port)| {
            let captures = &mut port.as_mut()?.captures.0;
            let place = captures.iter().position(|of| Arc::ptr_eq(of, capture))?;
            captures.remove(place);
            Some(number)
        });
        number.map_or(Ok(()), |number| state.follow_captures(number))
    }
}

impl<D: Devices> State<D> {
    /// Has a port's queues show packets to its captures, as they are now.
    fn follow_captures(&mut self, number: u16) -> Result<(), EngineError> {
        let port = self.slot(number);
        let tap = port.captures.tap();
        port.device.set_tap(tap.as_ref())?;
        self.tell_napis(number, |napi| Command::Tap(napi, tap.clone()));
        Ok(())
    }
}
