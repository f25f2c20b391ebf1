//! Runs the checker.

use stateright::{Checker, HasDiscoveries, Model};

use crate::slots::world::SlotWorld;

/// How many steps are explored, the nearest states first: a second or so. `TOLLGATE_SLOT_STEPS` is another number.
const STEPS: usize = 400_000;

/// Explores so many steps, or all of them; nothing may be wrong anywhere.
pub(super) fn holds(world: SlotWorld) {
    let most = std::env::var("TOLLGATE_SLOT_STEPS").ok();
    let most = most.map_or(STEPS, |steps| steps.parse().expect("a number of steps"));
    let checker = world.checker().target_state_count(most).spawn_bfs().join();
    let is_whole = checker.state_count() < most;
    eprintln!(
        "{} states of {} steps, the furthest {} steps away, {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        if is_whole { "and no more" } else { "and more" }
    );
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        for (state, action) in path.clone().into_vec() {
            eprintln!("{state:?}\n  -> {action:?}");
        }
        panic!("not so: {name}: {:?}", path.into_actions());
    }
}

/// Explores until this breaks, which has to happen.
pub(super) fn breaks(property: &'static str, world: SlotWorld) {
    let fault = world.fault;
    let checker = world
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{fault:?} was not found"));
    eprintln!(
        "{fault:?}: {} states, {:?}",
        checker.unique_state_count(),
        path.into_actions()
    );
}
