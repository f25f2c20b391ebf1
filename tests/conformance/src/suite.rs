//! The macro that mounts the suite.

/// Makes one test of each of the [`cases`](crate::cases).
///
/// Takes an `async fn(Clock) -> impl Store`; then, if needed, the name of what the store does not promise, and the attribute
/// of a test. See the [module documentation](crate).
///
/// | not promised | leaves out |
/// | --- | --- |
/// | `own_clock` | cases that need a clock that the suite moves |
/// | `leased` | the exact `retry` of a client that changes its plan, because the other plan may hold a lease; and the exact `retry` of allowed requests, because a process that answers from a lease does not know it to the tick |
/// | `eventual` | exact counts of many tasks at once, of two limiters on one name, and of two plans on one state: each counts locally and reports later. And the exact time of a full state: units count from when they are reported |
///
/// Under `eventual`, one limiter that sends one request after the other is exact, whenever it reports: it flushes its
/// unreported usage before the store decides.
#[macro_export]
macro_rules! conformance_suite {
    ($make:expr) => {
        $crate::conformance_suite!($make, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, own_clock) => {
        $crate::conformance_suite!($make, own_clock, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, leased) => {
        $crate::conformance_suite!($make, leased, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, eventual) => {
        $crate::conformance_suite!($make, eventual, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, #[$test:meta]) => {
        $crate::conformance_suite!($make, leased, #[$test]);
        $crate::conformance_suite! { @ $make, #[$test]
            time:
                tickets_that_are_held_and_cancelled_lift_no_client_above_its_limit,
                retry_is_exact_after_a_change_of_plan,
                windows_of_two_lengths_admit_the_longer_ones_limit_in_each_shorter_one,
                what_is_owed_is_owed_under_a_shorter_window,
                an_allowed_request_knows_to_the_tick_when_it_passes_again,
                a_request_that_costs_nothing_knows_when_one_unit_fits;
        }
    };
    ($make:expr, leased, #[$test:meta]) => {
        $crate::conformance_suite!(@counts $make, #[$test]);
        $crate::conformance_suite!(@together $make, #[$test]);
        $crate::conformance_suite!(@times $make, #[$test]);
        $crate::conformance_suite! { @ $make, #[$test]
            time:
                after_reset_after_the_whole_limit_is_there;
        }
    };
    ($make:expr, eventual, #[$test:meta]) => {
        $crate::conformance_suite!(@counts $make, #[$test]);
        $crate::conformance_suite!(@times $make, #[$test]);
    };
    ($make:expr, own_clock, #[$test:meta]) => {
        $crate::conformance_suite!(@counts $make, #[$test]);
        $crate::conformance_suite!(@together $make, #[$test]);
    };
    (@times $make:expr, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            time:
                retry_is_exact_to_the_tick,
                who_has_used_up_a_longer_window_waits_for_no_more_than_a_shorter_one,
                retry_of_a_request_is_that_of_the_rule_that_denies_longest,
                time_that_goes_back_never_refills,
                after_time_went_back_a_denial_is_no_longer_than_a_window,
                after_a_denial_time_that_goes_back_is_repaired,
                a_refund_that_comes_late_gives_back_nothing_that_time_gave,
                a_cost_that_never_fits_never_fits_later,
                what_is_owed_is_paid_back_before_anything_fits,
                a_client_that_costs_90_times_its_estimate_uses_what_the_quota_allows_and_the_debt,
                a_lowered_limit_keeps_what_is_owed;
            blocks:
                blocks_grow_and_are_forgotten_after_their_time,
                denials_that_are_too_long_ago_do_not_count,
                a_clock_that_is_set_back_blocks_nobody_for_longer_than_the_block;
            ids:
                an_id_ends_after_its_time_and_lives_longer_than_what_was_used;
        }
    };
    (@together $make:expr, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            names:
                a_name_is_one_budget_for_all_who_bind_it,
                a_raised_limit_keeps_what_was_used,
                a_lowered_limit_keeps_what_was_used,
                what_was_used_stays_used_after_the_name_was_free_in_between,
                a_change_of_plan_keeps_what_was_used,
                a_denial_under_a_small_plan_gives_nothing_back_to_a_large_one,
                a_quota_of_a_check_keeps_what_was_used,
                quotas_of_checks_admit_together_what_the_largest_does;
            tasks:
                among_many_tasks_exactly_the_limit_passes,
                among_many_tasks_a_denied_request_takes_nothing,
                among_many_tasks_partial_grants_sum_up_to_the_limit;
        }
    };
    (@counts $make:expr, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            counting:
                the_limit_passes_and_the_next_unit_does_not,
                a_denial_takes_nothing,
                a_large_denied_request_does_not_deny_small_ones,
                costs_are_summed,
                a_cost_of_zero_never_blocks_and_takes_nothing,
                a_cost_of_zero_creates_no_state,
                a_cost_above_the_limit_is_never,
                a_peek_takes_nothing_and_says_what_an_acquire_would,
                a_key_counts_for_itself,
                a_reset_makes_one_key_fresh,
                what_is_left_is_granted_in_part;
            requests:
                a_request_is_taken_whole_or_not_at_all,
                verdicts_are_in_the_order_of_the_checks,
                checks_on_one_state_are_folded,
                two_plans_of_one_rule_and_key_are_denied,
                a_check_that_never_fits_makes_the_request_never,
                a_request_without_checks_passes,
                a_rule_that_is_off_decides_nothing;
            names:
                a_second_quota_under_a_name_in_use_is_refused,
                other_plans_under_a_name_in_use_are_refused,
                a_refused_limiter_leaves_its_other_names_free,
                a_name_is_free_when_the_last_limiter_is_dropped_though_a_ticket_is_held,
                a_limiter_that_was_replaced_no_longer_holds_its_names,
                only_what_counts_in_this_store_can_be_replaced,
                a_rule_that_is_off_and_a_threshold_hold_no_name,
                of_threads_that_bind_a_name_to_different_quotas_one_wins,
                another_algorithm_under_a_name_starts_fresh,
                an_unlimited_plan_takes_nothing,
                an_unlimited_plan_does_not_stand_for_a_limited_one;
            shadows:
                a_shadow_denies_nothing,
                a_shadow_fills_as_if_it_were_alone,
                a_shadow_counts_a_partial_grant_once,
                a_threshold_reads_the_state_of_its_rule,
                a_threshold_is_never_written;
            tickets:
                a_lower_cost_gives_units_back,
                a_higher_cost_takes_as_far_as_units_are_there,
                after_the_end_of_a_block_a_request_is_settled_under_the_quota_that_counts_again,
                under_a_rule_with_debt_a_charge_is_owed_and_nothing_passes_meanwhile,
                a_request_settles_to_its_real_cost,
                a_cancelled_request_gives_everything_back,
                a_ticket_that_is_dropped_settles_nothing,
                a_ticket_that_cancels_on_drop_gives_everything_back,
                a_ticket_that_is_kept_gives_nothing_back,
                a_ticket_of_a_denial_gives_nothing_back;
            blocks:
                as_many_denials_as_the_block_says_block_one_key,
                what_does_not_fail_for_want_of_units_does_not_count,
                a_look_says_that_a_key_is_blocked_and_a_cost_of_zero_passes,
                a_block_comes_before_all_other_reasons_and_takes_nothing,
                a_blocked_key_passes_when_its_cost_fits_under_its_plan,
                a_shadow_says_that_it_would_block_and_blocks_nobody,
                a_reset_lifts_a_block_and_forgets_its_level,
                where_settled_requests_count_denials_do_not;
            ids:
                a_repeat_costs_nothing_also_when_nothing_is_left_and_three_times,
                an_id_is_of_one_key_one_rule_and_one_cost,
                other_rules_and_a_block_decide_a_repeat_as_any_request,
                a_first_request_that_gets_all_back_forgets_its_id_unless_it_was_repeated,
                of_a_key_64_ids_are_kept_and_a_reset_forgets_them;
        }
    };
    (@slots $make:expr, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            slots:
                at_most_the_limit_runs_at_once,
                remaining_is_the_number_of_free_slots,
                a_typical_hold_time_says_when_to_try_again,
                a_cost_above_the_slots_never_fits_and_one_of_zero_holds_none,
                a_denied_request_takes_neither_units_nor_slots,
                slots_go_back_once_whatever_holds_them,
                every_end_of_a_ticket_returns_its_slots,
                slots_are_numbered_in_the_order_of_their_start,
                a_lowered_number_of_slots_ends_nothing_and_starts_nothing,
                plans_of_slots_share_those_in_use,
                checks_on_the_same_slots_are_folded,
                a_shadow_of_slots_denies_nothing_and_counts_what_runs,
                a_look_at_slots_takes_none,
                a_reset_leaves_slots_to_the_requests_that_run,
                another_quota_under_the_name_of_slots_in_use_frees_none,
                among_many_tasks_never_more_than_the_limit_run;
        }
    };
    (@waiting $make:expr, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            waiting:
                requests_wait_in_the_order_of_the_store_spaced_to_the_tick,
                who_would_wait_too_long_is_denied_until_the_queue_has_room,
                a_request_waits_no_longer_than_it_has_patience,
                several_rules_start_together_and_are_charged_as_of_then,
                rules_that_cannot_wait_are_charged_when_the_request_starts,
                a_denial_frees_no_place_in_the_queue,
                the_last_place_goes_back_and_no_other,
                a_place_goes_back_to_what_was_before_it,
                a_queue_keeps_its_length_when_the_quota_changes,
                a_denial_says_nothing_of_how_long_a_state_of_another_quota_makes_wait,
                a_denial_by_a_shorter_wait_says_when_the_longer_queue_has_room,
                a_request_never_waits_for_what_never_fits_nor_for_nothing,
                a_threshold_above_the_burst_observes_the_queue,
                a_shadow_never_moves_the_start,
                a_shadow_is_decided_when_all_rules_let_the_request_start,
                what_has_waited_is_forgotten_only_when_it_is_paid_back,
                among_many_tasks_every_place_is_given_once;
        }
    };
    (@ $make:expr, #[$test:meta] $($module:ident: $($case:ident),+;)+) => {
        $($crate::conformance_suite! { @@ $make, #[$test] $module: $($case),+ })+
    };
    (@@ $make:expr, #[$test:meta] $module:ident: $($case:ident),+) => {
        $(
            #[$test]
            async fn $case() {
                let clock = $crate::Subject::new_clock();
                let store = $make((&clock).into()).await;
                let subject = $crate::Subject::new(store, clock);
                $crate::cases::$module::$case(&subject).await;
            }
        )+
    };
}

/// The same for stores that count [slots](tollgate_core::Quota::concurrent), in addition to [`conformance_suite`]. `own_clock` leaves
/// out the case that moves the clock.
#[macro_export]
macro_rules! slots_suite {
    ($make:expr) => {
        $crate::slots_suite!($make, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, own_clock) => {
        $crate::slots_suite!($make, own_clock, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, own_clock, #[$test:meta]) => {
        $crate::conformance_suite!(@slots $make, #[$test]);
    };
    ($make:expr, #[$test:meta]) => {
        $crate::conformance_suite!(@slots $make, #[$test]);
        $crate::conformance_suite! { @ $make, #[$test] slots: time_brings_no_slot_back; }
    };
}

/// The same for stores that count slots and keep [reservations](tollgate_core::types::Reservation), in addition to [`slots_suite`].
/// `own_clock` leaves out the case that moves the clock.
#[macro_export]
macro_rules! reservations_suite {
    ($make:expr) => {
        $crate::reservations_suite!($make, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, own_clock) => {
        $crate::reservations_suite!($make, own_clock, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, own_clock, #[$test:meta]) => {
        $crate::conformance_suite! { @ $make, #[$test]
            reservations:
                a_reservation_is_settled_once,
                rules_of_a_reservation_are_settled_to_costs_of_their_own,
                a_reservation_keeps_the_quota_the_id_and_the_block_of_its_check,
                a_text_that_was_cut_or_changed_settles_nothing,
                a_reservation_of_a_rule_that_is_gone_is_gone,
                a_term_that_is_none_is_refused_and_the_ticket_is_dropped,
                at_its_term_units_stay_used_and_slots_go_back,
                every_order_of_reservations_and_settlements_adds_up;
        }
    };
    ($make:expr, #[$test:meta]) => {
        $crate::reservations_suite!($make, own_clock, #[$test]);
        $crate::conformance_suite! { @ $make, #[$test]
            reservations: every_order_of_reservations_settlements_and_ends_adds_up;
        }
    };
}

/// The same for stores whose requests [wait](tollgate_core::Rule::wait) for units, in addition to [`conformance_suite`].
#[macro_export]
macro_rules! wait_suite {
    ($make:expr) => {
        $crate::wait_suite!($make, #[tokio::test(flavor = "multi_thread")]);
    };
    ($make:expr, #[$test:meta]) => {
        $crate::conformance_suite!(@waiting $make, #[$test]);
    };
}

/// The same for stores that keep balances of [credits](tollgate_core::Rule::credits), in addition to [`conformance_suite`].
#[macro_export]
macro_rules! credits_suite {
    ($make:expr) => {
        $crate::conformance_suite! { @ $make, #[tokio::test(flavor = "multi_thread")]
            credits:
                a_cost_is_taken_from_the_quota_or_else_from_the_balance,
                what_comes_back_goes_where_it_was_taken,
                a_charge_takes_from_the_quota_then_the_balance_then_is_owed,
                a_balance_is_touched_only_if_all_rules_let_pass,
                each_id_grants_once_and_is_taken_back_once,
                a_balance_ends_and_a_later_grant_prolongs_it,
                ids_are_known_until_their_end_and_bounded,
                among_many_tasks_quota_and_balance_are_used_exactly_once,
                what_cannot_have_credits_is_refused_with_what_would;
        }
    };
}
