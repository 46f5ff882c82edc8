//! The two components that every simulated computation is, compiled once for all runs.

use std::sync::Arc;

use guest_behaviours::trace::Parameters;
use tidelock::guest::{
    Component, Computation, ComputationSettings, GuestError, GuestOptions, GuestRuntime,
};
use tidelock::types::pipeline::{CallLimits, Grants, InstancePolicy};

/// The compiled components and their runtime.
pub(crate) struct Guests {
    runtime: Arc<GuestRuntime>,
    relay: Component,
    tally: Component,
}

impl Guests {
    /// Compiles the components.
    pub(crate) fn load() -> Guests {
        let runtime = GuestRuntime::new(GuestOptions::default()).expect("the guest runtime starts");
        let load = |example: &str| {
            let path = harness::component(example);
            let bytes = std::fs::read(&path)
                .unwrap_or_else(|error| panic!("failed to read {}: {error}", path.display()));
            runtime.load(&bytes).expect("the guest loads")
        };
        Guests {
            relay: load("trace_relay"),
            tally: load("trace_tally"),
            runtime,
        }
    }

    /// A computation with these parameters. Instances are kept from call to call: the sandbox is not what is
    /// simulated here, and a fresh one for each call takes longer than all else together.
    pub(crate) fn computation(
        &self,
        parameters: &Parameters,
        is_transform: bool,
    ) -> Result<Computation, GuestError> {
        let component = if is_transform {
            &self.tally
        } else {
            &self.relay
        };
        let settings = ComputationSettings {
            name: parameters.name.clone(),
            parameters: parameters.write(),
            grants: Grants::default(),
            limits: CallLimits::default(),
            instance: InstancePolicy::Reuse,
            relaxed_batching: false,
        };
        Computation::new(&self.runtime, component, settings)
    }
}
