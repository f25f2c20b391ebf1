//! An axum service with five routes and limits of each kind, in memory: `cargo run --example shop`.

use std::error::Error;

use tollgate::MemoryStore;
use tollgate_examples::{serve::serve, shop};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = shop::app(MemoryStore::new())?;
    serve(app, |address| {
        format!(
            "Try:
  curl -i http://{address}/
  curl -i http://{address}/items
  curl -i http://{address}/items -H 'x-api-key: acme.k1'
  curl -i 'http://{address}/search?q=anvils+for+coyotes'
  for i in 1 2 3 4 5 6; do curl -i -X POST http://{address}/login; done
  curl -i http://{address}/healthz
"
        )
    })
    .await
}
