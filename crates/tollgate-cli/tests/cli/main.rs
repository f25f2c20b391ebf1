//! The program as a shell has it: what it prints, and its exit code.

mod change;
mod doctor;
mod encrypted;
mod guide;
mod hostile;
mod key;
mod ledger;
mod load;
mod replay;
mod rules;
mod support;
mod top;
