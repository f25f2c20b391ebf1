//! Prints the script, for clients in other languages: `cargo run -p tollgate-redis --example script > script.lua`.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

fn main() {
    print!("{}", tollgate_redis::SCRIPT);
}
