//! Compiles Envoy's service, without a `protoc` to install.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/rls.proto");
    let service = protox::compile(["rls.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // For tests and benches; nobody connects by it.
        .build_transport(false)
        .bytes(".envoy")
        .compile_fds(service)?;
    Ok(())
}
