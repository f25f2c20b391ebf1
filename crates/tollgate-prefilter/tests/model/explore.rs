//! Explores all that can happen, the nearest states first.

use std::{
    collections::{HashSet, VecDeque},
    fmt::Debug,
};

use foldhash::fast::RandomState;

/// A world to explore.
pub(crate) trait Model {
    type State: Clone + Debug;
    type Action: Copy + Debug;

    fn first_state(&self) -> Self::State;

    /// What may happen next.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Takes a step; false if it changes nothing.
    fn take(&self, state: &mut Self::State, action: Self::Action) -> bool;

    /// A hash of all that matters from here on: what distinguishes states.
    fn fingerprint(&self, state: &Self::State) -> u64;

    /// What has to hold everywhere.
    fn properties() -> Vec<Property<Self>>;
}

/// What has to hold, and whether it does.
pub(crate) type Property<M> = (&'static str, fn(&M, &<M as Model>::State) -> bool);

/// What was done from the first state on, and in which states.
type Way<M> = Vec<(<M as Model>::State, <M as Model>::Action)>;

/// How far a world is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) depth: usize,
    pub(crate) steps: usize,
}

/// To the last state.
pub(crate) const WHOLE: Bounds = Bounds {
    depth: usize::MAX,
    steps: usize::MAX,
};

/// What was explored.
pub(crate) struct Explored<M: Model> {
    pub(crate) world: M,
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// How many states the longest way has.
    pub(crate) depth: usize,
    /// The first of the properties that did not hold, with the nearest way to where it did not.
    pub(crate) broken: Option<(&'static str, Way<M>)>,
}

impl<M: Model> Explored<M> {
    /// What was done until it broke.
    pub(crate) fn actions(&self) -> Option<Vec<M::Action>> {
        let (_, way) = self.broken.as_ref()?;
        Some(way.iter().map(|it| it.1).collect())
    }
}

/// Explores until one of these properties does not hold.
pub(crate) fn explore<M: Model>(
    world: M,
    properties: &[Property<M>],
    bounds: Bounds,
) -> Explored<M> {
    let first = world.first_state();
    // From which state, by their order, and by which of its actions each was reached.
    let mut reached = vec![(0, 0)];
    let mut seen = HashSet::<u64, RandomState>::default();
    seen.insert(world.fingerprint(&first));
    let mut pending = VecDeque::from([first]);
    let (mut steps, mut depth, mut deeper) = (1, 0, 0);
    let mut actions = Vec::new();
    let mut broken = None;
    for at in 0.. {
        if steps >= bounds.steps {
            break;
        }
        let Some(state) = pending.pop_front() else {
            break;
        };
        if at == deeper {
            (depth, deeper) = (depth + 1, reached.len());
        }
        if let Some((name, _)) = properties.iter().find(|it| !it.1(&world, &state)) {
            broken = Some((*name, way(&world, &reached, at)));
            break;
        }
        if depth >= bounds.depth {
            continue;
        }
        world.actions(&state, &mut actions);
        for (index, action) in actions.drain(..).enumerate() {
            let mut next = state.clone();
            if !world.take(&mut next, action) {
                continue;
            }
            steps += 1;
            if seen.insert(world.fingerprint(&next)) {
                reached.push((at, index));
                pending.push_back(next);
            }
        }
    }
    Explored {
        world,
        states: reached.len(),
        steps,
        depth,
        broken,
    }
}

fn way<M: Model>(world: &M, reached: &[(usize, usize)], mut at: usize) -> Way<M> {
    let mut indices = Vec::new();
    while at > 0 {
        indices.push(reached[at].1);
        at = reached[at].0;
    }
    let mut state = world.first_state();
    let step = |index: usize| {
        let mut actions = Vec::new();
        world.actions(&state, &mut actions);
        let action = actions[index];
        let before = state.clone();
        world.take(&mut state, action);
        (before, action)
    };
    indices.into_iter().rev().map(step).collect()
}
