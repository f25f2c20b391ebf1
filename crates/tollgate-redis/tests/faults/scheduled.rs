//! Faults one after the other, in the order of the seed.

use crate::{fault::Fault, fleet::Fleet, seed::Seed};

async fn survives(faults: &[Fault]) {
    let seed = Seed::new();
    let mut fleet = Fleet::start(&seed).await;
    fleet.suffers(faults).await;
}

#[tokio::test]
async fn a_server_that_dies_stands_still_or_loads_costs_what_is_stated_and_is_recovered_from() {
    survives(&[Fault::Killed, Fault::Stopped, Fault::Loading, Fault::Killed]).await;
}

#[tokio::test]
async fn a_network_in_trouble_costs_what_is_stated_and_is_recovered_from() {
    survives(&[Fault::Slow, Fault::BlackHole, Fault::Reset, Fault::Reset]).await;
}

#[tokio::test]
async fn lost_scripts_states_and_connections_cost_what_is_stated_and_are_recovered_from() {
    survives(&[
        Fault::ScriptFlushed,
        Fault::Flushed,
        Fault::ClientsKilled,
        Fault::WrongType,
        Fault::Flushed,
        Fault::ScriptFlushed,
    ])
    .await;
}

#[tokio::test]
async fn a_server_that_refuses_costs_what_is_stated_and_is_recovered_from() {
    survives(&[
        Fault::ReadOnly,
        Fault::OutOfMemory,
        Fault::Password,
        Fault::Full,
    ])
    .await;
}
