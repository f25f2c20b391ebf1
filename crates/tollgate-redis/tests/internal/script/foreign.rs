//! Values that the script did not write.

use crate::script::args::ScriptCall;
use redis::Value;
use tollgate_core::{Outcome, algorithm::Taken, store::Settlement};
use tollgate_test_servers::numbers::Numbers;

use crate::internal_tests::script::{MARGIN, NOW, QUOTAS, Subject, every_algorithm};

#[test]
fn a_string_that_is_no_state_fails_its_check_and_stays() {
    let mut subject = Subject::new(every_algorithm());
    for rule in 0..QUOTAS.len() as u16 {
        let key = subject.key(rule);
        for theirs in [
            &b""[..],
            b"1",
            b"hello",
            &[0; 33],
            &[255; 37],
            &[0x11; 33],
            &[0x14; 41],
        ] {
            subject.connection.command([&b"SET"[..], &key, theirs]);
            let check = Subject::check(rule, 1);
            let decision = subject.acquire(NOW, &[check]);
            assert_eq!(decision.outcome(), Outcome::Failed, "{rule} {theirs:?}");
            let taken = Taken::new(NOW, NOW + 1);
            let holding = tollgate_core::store::Hold::of_store(check, taken);
            for how in [Settlement::Cancel, Settlement::Charge(1)] {
                let mut call = ScriptCall::at(NOW, MARGIN);
                assert!(call.settle(&subject.encoder, &holding, how));
                assert!(matches!(subject.send(&call), Value::Array(_)));
            }
            let still = subject.connection.command([&b"GET"[..], &key]);
            assert_eq!(still, Value::BulkString(theirs.to_vec()));
        }
    }
}

/// A script that ended in the middle would take other requests with it.
#[test]
fn a_damaged_state_never_ends_the_script() {
    let mut subject = Subject::new(every_algorithm());
    let mut numbers = Numbers(5);
    for rule in 0..QUOTAS.len() as u16 {
        let key = subject.key(rule);
        for step in 0..5 {
            let _ = subject.acquire(NOW + step * 300_000, &[Subject::check(rule, 2)]);
        }
        let Value::BulkString(whole) = subject.connection.command([&b"GET"[..], &key]) else {
            panic!("there is a state");
        };
        for _ in 0..1_000 {
            let mut damaged = whole.clone();
            for _ in 0..numbers.below(4) {
                let place = numbers.below(damaged.len() as u64) as usize;
                damaged[place] =
                    numbers.of(&[0, 1, 0x7f, 0xf0, 0xff, numbers.clone().next() as u8]);
            }
            if numbers.one_in(2) {
                // A number that no arithmetic is made for, in the quota or in what is counted.
                let number = numbers.of(&[f64::INFINITY, f64::NAN, -1.0, 0.5, 1e300, 9e15]);
                let place = numbers.of(&[1, 9, 21, 29, damaged.len() - 12]);
                let place = place.min(damaged.len() - 8);
                damaged[place..place + 8].copy_from_slice(&number.to_le_bytes());
            }
            if numbers.one_in(2) {
                // As if units were out in leases.
                damaged.extend((0..16).map(|_| numbers.of(&[0, 0, 0, 1, 0x42, 0xff])));
            }
            subject.connection.command([&b"SET"[..], &key, &damaged]);
            let mut call = ScriptCall::at(NOW, MARGIN);
            for cost in [0, 1, 11] {
                let _ = call.acquire(&subject.encoder, &[Subject::check(rule, cost)]);
            }
            let taken = Taken::new(NOW, NOW + 1_000_000);
            let check = Subject::check(rule, 1);
            let holding = tollgate_core::store::Hold::of_store(check, taken);
            call.settle(&subject.encoder, &holding, Settlement::Cancel);
            let reply = subject.send(&call);
            assert!(matches!(reply, Value::Array(_)), "{reply:?} to {damaged:?}");
            subject.connection.command([&b"SET"[..], &key, &damaged]);
            let mut call = ScriptCall::at(NOW, MARGIN);
            assert!(call.reset(&subject.encoder, rule, check.key()));
            let _ = call.acquire(&subject.encoder, &[check]);
            let reply = subject.send(&call);
            assert!(matches!(reply, Value::Array(_)), "{reply:?} to {damaged:?}");
        }
    }
}
