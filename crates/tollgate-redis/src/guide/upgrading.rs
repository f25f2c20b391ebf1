//! Two releases side by side: what a newer and an older process do when they meet.
//!
//! # In short
//!
//! Deploy a new release as you deploy any other: one process after the other, without a pause. Nothing fails. If the release
//! changes the format of states, a client may get up to one limit more while both releases run, and nothing more than that.
//! The changelog says which releases do.
//!
//! # What is shared
//!
//! **The script.** Each process sends the script of its own release, known to the server by its hash. Two releases never run
//! each other's script, and the server keeps both.
//!
//! **The states.** The key of a state ends in the version of its format: `{shop}:client:rule:a1`. A process reads and writes
//! keys of its own version, so no process ever reads a state that it does not understand. As long as two releases have the same
//! format, and most do, they share every budget.
//!
//! # When the format changes
//!
//! A process of the newer format that finds no state of a client under its own key looks under the older key, once. It converts
//! the state it finds there, and writes it under its own key. The older state stays for the older processes.
//!
//! | process | reads | writes | counts |
//! | --- | --- | --- | --- |
//! | older | its own key | its own key | what older processes admit, and what all processes admitted before the first newer one came |
//! | newer | its own key, and the older one where there is none | its own key | the same, and what newer processes admit |
//!
//! The bound: all processes together admit at most the limit, and what the older ones admit after a newer process has
//! converted the state. That is at most what was left then, and what comes back while older processes run: **at most one limit
//! more for each client and window**. It ends with the last older process.
//!
//! - A denial and a look convert nothing. They say what the older state says.
//! - A refund by a newer process of units that an older one took goes to the converted state.
//! - A reset by a newer process forgets both states. One by an older process forgets its own only.
//! - Units that an older process holds on lease are converted as used. It returns them to its own state.
//! - Until no state of the older format is left, a new client costs the server a second read.
//!
//! A release reads the format before its own, and no earlier one. Upgrade through the releases between, or let all budgets begin
//! anew.
//!
//! # Going back
//!
//! Older processes that come back do not see what newer ones have written. They go on with the older states that are still
//! there: a client gets at most one limit more, once.
