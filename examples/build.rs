//! Compiles the service of the gRPC examples, without a `protoc` to install.

use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/weather.proto");
    let service = protox::compile(["weather.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(service)?;
    Ok(())
}
