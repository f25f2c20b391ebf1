//! Runs the checker.

use stateright::{Checker, Model};

use crate::{
    model_store::ModelStore,
    world::{NO_MORE_PASSES, NOTHING_IS_LOST, World},
};

/// Explores everything; nothing may be wrong anywhere.
pub(crate) fn holds<L: ModelStore>(world: World<L>) {
    nothing_is_wrong(&world.checker().spawn_bfs().join());
}

/// The same, of a world that takes long to explore to its end: all that can happen in so many steps, or in `TOLLGATE_MODEL_STEPS`.
pub(crate) fn holds_for<L: ModelStore>(steps: usize, world: World<L>) {
    let steps = match std::env::var("TOLLGATE_MODEL_STEPS") {
        Ok(text) => text.parse().expect("a number of steps"),
        Err(_) => steps,
    };
    nothing_is_wrong(&world.checker().target_max_depth(steps).spawn_bfs().join());
}

fn nothing_is_wrong<L: ModelStore>(checker: &impl Checker<World<L>>) {
    eprintln!(
        "{} states of {} steps, the furthest {} steps away",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        for (state, action) in path.clone().into_vec() {
            eprintln!(
                "now {} lost {:?} {:?} | {:?} | ok {} -> {:?}",
                state.now,
                state.lost,
                state.store,
                state.processes,
                state.loses_nothing(),
                action
            );
        }
        let path = path.into_actions();
        panic!("not so: {name}: {path:?}");
    }
}

/// Explores until more than the limit was admitted, which has to happen.
pub(crate) fn is_caught<L: ModelStore>(world: World<L>) {
    breaks(NO_MORE_PASSES, world);
}

/// Explores until a unit of a window was lost, which has to happen.
pub(crate) fn loses<L: ModelStore>(world: World<L>) {
    breaks(NOTHING_IS_LOST, world);
}

fn breaks<L: ModelStore>(broken: &'static str, world: World<L>) {
    let fault = world.fault;
    let checker = world
        .checker()
        .finish_when(stateright::HasDiscoveries::AnyOf([broken].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(broken);
    let path = path.unwrap_or_else(|| panic!("{fault:?} was not found"));
    let actions = path.into_actions();
    eprintln!(
        "{fault:?}: {} states, {actions:?}",
        checker.unique_state_count()
    );
}
