//! What the laboratory measures and prints.

mod overload;
mod program;
mod regions;
mod simulation;
