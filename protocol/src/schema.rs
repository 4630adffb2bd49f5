//! Identifiers and timestamps as OpenAPI schemas.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::canonical::Sha256Digest;
use crate::ids::{ArtifactId, ConversationId, DeliveryId, EndpointId, EventId, FileId, HookId, OperationId, RunId};
use crate::time::Timestamp;

macro_rules! identifiers {
    ($($name:ident: $what:literal;)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let prefix = Self::PREFIX;
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($what))
                    .pattern(Some(format!("^{prefix}[0-9a-f]{{32}}$")))
                    .examples([format!("{prefix}01a1fdacce837753badf368b3b8b6a04")])
                    .into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

identifiers! {
    EndpointId: "A published service.";
    RunId: "One piece of accepted work.";
    ConversationId: "A conversation of one subject with one service.";
    OperationId: "A stop or a reset that was asked for.";
    HookId: "An incoming webhook.";
    EventId: "A stored event; receivers deduplicate by it.";
    FileId: "A file that was uploaded.";
    ArtifactId: "A file that a run handed out.";
    DeliveryId: "One event on its way to one receiver.";
}

impl PartialSchema for Sha256Digest {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A SHA-256, in hexadecimal."))
            .pattern(Some("^[0-9a-f]{64}$"))
            .examples(["5f8f04f6a3a892aaabbddb6cf273894493773960d4a325b105fee46eef4304f1"])
            .into()
    }
}

impl ToSchema for Sha256Digest {}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A moment: RFC 3339, UTC, with milliseconds."))
            .examples(["2026-11-21T09:14:50.123Z"])
            .into()
    }
}

impl ToSchema for Timestamp {}
