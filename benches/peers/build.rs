//! Compiles the gRPC service that is called. Not taken from the examples: they switch metrics on, which none of the peers has.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../../examples/proto/weather.proto");
    let service = protox::compile(["weather.proto"], ["../../examples/proto"])?;
    tonic_prost_build::configure().compile_fds(service)?;
    Ok(())
}
