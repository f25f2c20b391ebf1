//! Builds what examples build when they are copied, and writes `hello` for the test that serves it.

#[path = "../build.rs"]
mod service;

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    service::main()?;

    // `include!` takes a program without the line that says what it is.
    println!("cargo:rerun-if-changed=start/hello.rs");
    let hello = fs::read_to_string("start/hello.rs")?;
    let (_, program) = hello
        .split_once("\n\n")
        .ok_or("hello.rs has a first line")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("hello.rs"), program)?;
    Ok(())
}
