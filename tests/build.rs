//! Compiles the service that the gRPC tests call, without a `protoc` to install.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../examples/proto/weather.proto");
    let service = protox::compile(["weather.proto"], ["../examples/proto"])?;
    tonic_prost_build::configure().compile_fds(service)?;
    Ok(())
}
