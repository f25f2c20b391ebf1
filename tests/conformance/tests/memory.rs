//! The conformance suite on the memory store, and on a delayed store in front of it.

mod memory {
    use tollgate_conformance::{
        conformance_suite, credits_suite, reservations_suite, slots_suite, wait_suite,
    };
    use tollgate_core::{Clock, MemoryStore};

    async fn store(clock: Clock) -> MemoryStore {
        MemoryStore::builder().clock(clock).build()
    }

    conformance_suite!(store);
    slots_suite!(store);
    credits_suite!(store);
    wait_suite!(store);
    reservations_suite!(store);
}

mod remote {
    use std::time::Duration;

    use tollgate_conformance::{RemoteStore, conformance_suite, reservations_suite, slots_suite};
    use tollgate_core::{Clock, MemoryStore};

    async fn store(clock: Clock) -> RemoteStore {
        let memory = MemoryStore::builder().clock(clock).build();
        RemoteStore::new(memory).delay(Duration::from_millis(2))
    }

    conformance_suite!(store, #[tokio::test(start_paused = true)]);
    slots_suite!(store, #[tokio::test(start_paused = true)]);
    reservations_suite!(store, own_clock, #[tokio::test(start_paused = true)]);
}

mod remote_on_its_own_clock {
    use std::time::Duration;

    use tollgate_conformance::{RemoteStore, conformance_suite, slots_suite};
    use tollgate_core::{Clock, MemoryStore};

    async fn store(_: Clock) -> RemoteStore {
        RemoteStore::new(MemoryStore::new()).delay(Duration::from_micros(10))
    }

    conformance_suite!(store, own_clock, #[tokio::test(start_paused = true)]);
    slots_suite!(store, own_clock, #[tokio::test(start_paused = true)]);
}
