//! Our messages against those in Envoy's own programs, which carry their descriptors.

use std::{collections::BTreeMap, fs};

use memchr::memmem;
use prost::Message as _;
use prost_types::{
    DescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::support::envoy::{VERSIONS, program};

/// Fields that an older Envoy does not have.
const NEWER: &[(&str, &str)] = &[
    ("1.36.4", "RateLimit.unit_multiplier"),
    ("1.36.4", "RateLimitDescriptor.is_negative_hits"),
];

/// A field: its number, whether it is a list, and its type.
type Field = (i32, bool, String);

fn fields(message: &DescriptorProto, all: &mut BTreeMap<String, Field>) {
    for field in &message.field {
        let kind = match field.r#type() {
            // A string whose bytes are not looked at is the same on the wire.
            Type::Bytes if (message.name(), field.name()) == ("Entry", "value") => Type::String,
            // The numbers of the units that there are; those of both are listed below.
            other => other,
        };
        let of_message = field.type_name().rsplit('.').next().unwrap_or_default();
        let kind = format!(
            "{kind:?} {}",
            if kind == Type::Enum { "" } else { of_message }
        );
        let is_list = field.label() == Label::Repeated;
        all.insert(
            format!("{}.{}", message.name(), field.name()),
            (field.number(), is_list, kind),
        );
    }
    for values in &message.enum_type {
        for value in &values.value {
            all.insert(
                format!("{}::{}", values.name(), value.name()),
                (value.number(), false, String::new()),
            );
        }
    }
    for nested in &message.nested_type {
        fields(nested, all);
    }
}

/// The descriptor of a file in a program, which begins with its name.
fn descriptor(program: &[u8], name: &str) -> FileDescriptorProto {
    let mut begin = vec![0x0a, u8::try_from(name.len()).expect("it is short")];
    begin.extend_from_slice(name.as_bytes());
    begin.push(0x12);
    // It ends somewhere behind: with the syntax, the last field.
    let read = memmem::find_iter(program, &begin).filter_map(|at| {
        let syntax = b"\x62\x06proto3";
        let end = at + memmem::find(&program[at..], syntax)? + syntax.len();
        FileDescriptorProto::decode(&program[at..end]).ok()
    });
    read.last().unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn each_field_is_that_of_envoy() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let set = protox::compile(["rls.proto"], [folder]).expect("it is right");
    let own = set
        .file
        .iter()
        .find(|file| file.package() == "envoy.service.ratelimit.v3")
        .expect("it is compiled");
    let mut ours = BTreeMap::new();
    own.message_type
        .iter()
        .for_each(|message| fields(message, &mut ours));
    for version in VERSIONS {
        let program = fs::read(program(version)).expect("it is read");
        let mut theirs = BTreeMap::new();
        for name in [
            "envoy/service/ratelimit/v3/rls.proto",
            "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
            "envoy/config/core/v3/base.proto",
        ] {
            let file = descriptor(&program, name);
            file.message_type
                .iter()
                .for_each(|message| fields(message, &mut theirs));
            if let [service] = &file.service[..] {
                assert_eq!(
                    (file.package(), service.name()),
                    (own.package(), own.service[0].name())
                );
                assert_eq!(service.method[0].name(), own.service[0].method[0].name());
            }
        }
        for (name, field) in &ours {
            match theirs.get(name) {
                Some(their) => assert_eq!(their, field, "{name} of {version}"),
                None => assert!(
                    NEWER.contains(&(version, name)),
                    "{name} is not in Envoy {version}"
                ),
            }
        }
    }
}
