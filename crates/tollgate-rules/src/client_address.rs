//! How a document says that the client's address is found: `client_ip = { header = "x-forwarded-for", trusted_proxies = ["10.0.0.0/8"] }`.

use tollgate::key::{ClientIp, KeyExtractor, client_ip};

use crate::{node::Node, reader::Reader};

/// Reads the table, which is for all rules of the document.
pub(crate) fn read(reader: Reader<'_>, node: &Node) -> Option<ClientIp> {
    let what = "client_ip";
    let fields = reader.fields(node, what, "client_ip")?;
    let header = fields.required("header", "\"x-forwarded-for\"")?;
    let header = reader.header_name(header, "x-forwarded-for");
    let mut client = client_ip();
    for node in fields.list("trusted_proxies") {
        let proxy = reader.text(node, "a network as \"10.0.0.0/8\"")?.value;
        let alone = client_ip().trusted_proxies([proxy]).x_forwarded_for();
        if let Err(wrong) = alone.validate() {
            reader.wrong(&node.span, wrong);
            return None;
        }
        client = client.trusted_proxies([proxy]);
    }
    if let Some(node) = fields.get("hops") {
        // At most 64.
        client = client.hops(reader.number(node, "a number of proxies", 1, 64)? as usize);
    }
    if fields.get("trusted_proxies").is_none() && fields.get("hops").is_none() {
        let proxies = reader.example("trusted_proxies = [\"10.0.0.0/8\"]");
        let hops = reader.example("hops = 1");
        let message = format!(
            "any client may write a header; add {proxies} with the networks of your proxies, or {hops} with their number"
        );
        reader.wrong(&node.span, message);
        return None;
    }
    let header = header?;
    client = match header.as_str() {
        "x-forwarded-for" => client.x_forwarded_for(),
        "forwarded" => client.forwarded(),
        name => client.single_header(name),
    };
    match client.validate() {
        Ok(()) => Some(client),
        Err(wrong) => {
            reader.wrong(&node.span, wrong);
            None
        }
    }
}
