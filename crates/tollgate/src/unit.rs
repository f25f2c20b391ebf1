//! What a rule counts, in words.

/// What a rule counts, in the plural; `units` where requests differ in cost.
pub(crate) fn unit_of(rule: &tollgate_core::Rule) -> &str {
    rule.unit_name().unwrap_or(match rule.fixed_cost() {
        1 => "requests",
        _ => "units",
    })
}
