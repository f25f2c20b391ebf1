//! Balances: granted, taken back and told by a script of their own, one call for each.

use std::sync::Arc;

use tollgate_core::{
    Check, Pending, Step, StoreError, Tick,
    store::{CreditChange, CreditRefusal, CreditState},
    types::Balance,
};

use crate::{
    connection::{
        command::{Command, Script},
        error::CallError,
        resp::Value,
    },
    script::encoder::double,
    store::rule_set_context::RuleSetContext,
};

pub(crate) static CHANGE: Script = Script::new(include_str!("../../lua/credits_change.lua"));

/// Changes the balance of a check's key, or tells it: `args` are as `credits_change.lua` reads them.
pub(super) fn run_credits(
    context: &Arc<RuleSetContext>,
    check: &Check,
    mut args: Vec<u8>,
) -> Step<Result<Balance, StoreError>> {
    let keys = context.encoder.balance_names(check);
    let call = context.store.new_call(context.now());
    let is_change = args[0] != 0;
    args[1] = u8::from(context.encoder.keyspace.keys.moves());
    let args = [call.args().next().unwrap_or_default(), &args];
    let answer = context.store.run(Command::new(&CHANGE, &keys, &args));
    let (context, check) = (Arc::clone(context), *check);
    Step::Wait(Pending::new(async move {
        let answer = answer.await;
        if is_change {
            // A request that was denied may pass now; also if the answer is lost.
            context.local.unlearn(&check);
        }
        let numbers = match answer? {
            Value::Integers(integers) => {
                let numbers = integers.iter().map(|it| Tick::try_from(*it).ok());
                numbers.collect::<Option<Vec<Tick>>>()
            }
            _ => None,
        };
        let refusal = match numbers.as_deref() {
            Some([now, 0, units, ends, changed]) => {
                return Ok(Balance::new(*units, *ends, *now, *changed));
            }
            Some([_, 1, ..]) => CreditRefusal::Ended,
            Some([_, 2, ..]) => CreditRefusal::TooManyGrants,
            Some([_, 3, ..]) => CreditRefusal::TooManyUnits,
            _ => {
                let error = CallError::misunderstood();
                context.store.observer.background_failed(&error);
                return Err(error.into());
            }
        };
        Err(refusal.into())
    }))
}

/// As `credits_change.lua` reads them.
pub(crate) fn change_args(change: CreditChange) -> Vec<u8> {
    let (what, units, until, id) = match change {
        CreditChange::Grant { units, until, id } => (1, double(units), until, id),
        CreditChange::Revoke { id } => (2, double(0), 0, id),
        // Below 2^53.
        CreditChange::Correct(units) => (4, (units as f64).to_le_bytes(), 0, 0),
        _ => (0, double(0), 0, 0),
    };
    let numbers = [units, double(until), id.to_le_bytes()];
    [&[what, 0], numbers.as_flattened()].concat()
}

/// Gives a key the balance that a ledger has, unless it has one. The state itself says whether it has ended.
pub(super) fn restore_args(state: &CreditState) -> Vec<u8> {
    // One that has ended is none.
    let mut args = [
        &[3, 0],
        [double(state.units(0)), double(state.until())].as_flattened(),
    ]
    .concat();
    for (id, units, until) in state.grants() {
        args.extend([id.to_le_bytes(), double(units), double(until)].as_flattened());
    }
    args
}
