//! Runs the checker.

use stateright::{Checker, HasDiscoveries, Model};

use crate::slots::world::SlotWorld;

/// How much of a world is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// To the last state: that nothing is wrong anywhere is shown.
    Whole,
    /// So many steps, the nearest states first: of a world that is larger than that, some is shown.
    Nearest(usize),
}

/// Takes the test command less than a second. `TOLLGATE_SLOT_STEPS` is another number.
pub(super) const NEAREST: Extent = Extent::Nearest(150_000);

/// The number of steps that the environment names.
pub(super) fn steps() -> Option<usize> {
    let steps = std::env::var("TOLLGATE_SLOT_STEPS").ok()?;
    Some(steps.parse().expect("a number of steps"))
}

/// Explores that much, and nothing may be wrong anywhere.
pub(super) fn holds(world: SlotWorld, extent: Extent) {
    let most = match extent {
        Extent::Whole => usize::MAX,
        Extent::Nearest(most) => steps().unwrap_or(most),
    };
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
    assert!(
        is_whole || extent != Extent::Whole,
        "not explored to the end"
    );
    if let (Extent::Nearest(most), None) = (extent, steps()) {
        assert!(
            !is_whole,
            "it has fewer than {most} steps; explore it whole"
        );
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
