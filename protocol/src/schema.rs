//! Identifiers and timestamps as OpenAPI schemas.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::ids::{ConversationId, DeliveryId, EndpointId, EventId, HookId, OperationId, RunId};
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
    DeliveryId: "One event on its way to one receiver.";
}

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
