//! Where everything stands, and what may happen next.

use smallvec::SmallVec;
use tollgate_core::Tick;
use tollgate_prefilter::{SlotHolder, SlotMessage, SlotOutcome, SlotOwner, SlotReply};
use tollgate_test_reference::SlotState;

use crate::{
    explore::{Bounds, Model, WHOLE, explore},
    slots::world::SlotWorld,
};

/// The most slots of a process that are followed.
pub(super) const MOST: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    /// The time of the processes.
    pub(super) now: Tick,
    /// The time of the store.
    pub(super) clock: Tick,
    pub(super) store: SlotState,
    pub(super) processes: SmallVec<[Process; 3]>,
    /// Processes that have crashed, as long as something of them is left.
    pub(super) gone: Vec<Gone>,
    pub(super) next_owner: u64,
    pub(super) left: Budget,
    /// The store has forgotten what it knew, or its clock was set.
    pub(super) is_disturbed: bool,
    /// What went wrong.
    pub(super) wrong: Option<&'static str>,
}

/// How often each of these may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) crashes: u8,
    /// The store forgets all it knows.
    pub(super) resets: u8,
    /// The store's clock is set forward by a term.
    pub(super) forward: u8,
    /// It is set back by a term.
    pub(super) back: u8,
    /// It gains a tick on the clocks of the processes.
    pub(super) drift: u8,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Process {
    pub(super) owner: SlotOwner,
    pub(super) seq: u64,
    pub(super) holder: SlotHolder,
    /// Requests that run and whose slots the store has known ever since.
    pub(super) valid: u32,
    /// Requests that run otherwise.
    pub(super) outlived: u32,
    pub(super) in_flight: Vec<InFlight>,
    /// An exact message has said what runs: nothing has ended since.
    pub(super) is_reported: bool,
    /// When the last exact message was sent of those that are in flight no more.
    pub(super) reported_at: Tick,
    /// The requests that ran when a faulty process began to write a message.
    pub(super) composed: Option<u32>,
    /// When slots were lost, or on their way back: the last ones first.
    pub(super) lost: [Tick; MOST],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InFlight {
    pub(super) message: SlotMessage,
    pub(super) sent: Tick,
    /// The process still waits for the reply.
    pub(super) is_waited: bool,
    /// A renewal was sent since.
    pub(super) is_void: bool,
    pub(super) reply: Option<SlotReply>,
    /// The store has known the slots that it granted ever since.
    pub(super) is_valid: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gone {
    pub(super) owner: SlotOwner,
    pub(super) strays: Vec<(SlotMessage, Tick)>,
    pub(super) lost: [Tick; MOST],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// A tick passes everywhere.
    Tick,
    /// A tick passes at the store.
    Drift,
    Reset,
    Forward,
    Back,
    /// A request acquires a slot.
    Acquire(usize),
    /// A request ends.
    End(usize, bool),
    Renew(usize),
    /// A faulty process begins to write a renewal.
    Compose(usize),
    /// The store processes a message.
    Execute(usize, usize),
    /// The reply comes.
    Deliver(usize, usize),
    /// The process waits no longer: the message or its reply is lost, or it is still on its way to the store.
    GiveUp(usize, usize, bool),
    /// The process hears that a message did not leave it.
    NotSent(usize, usize),
    /// The process dies, and starts again with nothing.
    Crash(usize),
    /// The store processes a message of a process that is gone.
    ExecuteGone(usize, usize),
    LoseGone(usize, usize),
}

impl Process {
    pub(super) fn new(owner: SlotOwner) -> Self {
        Self {
            owner,
            seq: 0,
            holder: SlotHolder::new(owner),
            valid: 0,
            outlived: 0,
            in_flight: Vec::new(),
            is_reported: true,
            reported_at: 0,
            composed: None,
            lost: [0; MOST],
        }
    }

    pub(super) fn running(&self) -> u32 {
        self.valid + self.outlived
    }

    /// The slots that it has in use, or has been granted.
    pub(super) fn held(&self) -> u32 {
        let granted = self.in_flight.iter().filter(|it| {
            let outcome = it.reply.map(|reply| reply.outcome);
            it.is_waited && !it.is_void && matches!(outcome, Some(SlotOutcome::Granted { .. }))
        });
        self.holder.running().max(self.running()) + granted.map(|it| it.message.want).sum::<u32>()
    }

    /// A message that was sent is in flight no more.
    pub(super) fn note_said(&mut self, it: &InFlight) {
        if it.message.is_exact {
            self.reported_at = self.reported_at.max(it.sent);
        }
    }

    /// When the last exact message was sent.
    pub(super) fn exact_at(&self) -> Tick {
        let in_flight = self.in_flight.iter().filter(|it| it.message.is_exact);
        in_flight
            .map(|it| it.sent)
            .fold(self.reported_at, |last, it| last.max(it))
    }
}

// Explores worlds.

/// How much of a world is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// To the last state: that nothing is wrong anywhere is shown.
    Whole,
    /// So many steps, the nearest states first: of a world that is larger than that, some is shown.
    Nearest(usize),
}

/// Takes the test command less than a second. `TOLLGATE_SLOT_STEPS` is another number.
pub(super) const NEAREST: Extent = Extent::Nearest(162_000);

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
    let bounds = Bounds {
        steps: most,
        ..WHOLE
    };
    let explored = explore(world, &SlotWorld::properties(), bounds);
    let is_whole = explored.steps < most;
    eprintln!(
        "{} states of {} steps, the furthest {} steps away, {}",
        explored.states,
        explored.steps,
        explored.depth,
        if is_whole { "and no more" } else { "and more" }
    );
    if let Some((name, way)) = &explored.broken {
        for (state, action) in way {
            eprintln!("{state:?}\n  -> {action:?}");
        }
        panic!("not so: {name}: {:?}", explored.actions());
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
    let mut properties = SlotWorld::properties();
    properties.retain(|it| it.0 == property);
    let explored = explore(world, &properties, WHOLE);
    let actions = explored.actions();
    let actions = actions.unwrap_or_else(|| panic!("{:?} was not found", explored.world.fault));
    eprintln!(
        "{:?}: {} states, {actions:?}",
        explored.world.fault, explored.states
    );
}
