//! Compiles the service of the gRPC examples, without a `protoc` to install; and writes `hello` for the test that serves it.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/weather.proto");
    let service = protox::compile(["weather.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(service)?;

    // `include!` takes a program without the line that says what it is.
    println!("cargo:rerun-if-changed=hello.rs");
    let hello = fs::read_to_string("hello.rs")?;
    let (_, program) = hello
        .split_once("\n\n")
        .ok_or("hello.rs has a first line")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("hello.rs"), program)?;
    Ok(())
}
