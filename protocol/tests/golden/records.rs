//! Records as callers and administrators see them.

use deskgate_protocol::conversation::*;
use deskgate_protocol::delivery::{Delivery, DeliveryState};
use deskgate_protocol::file::{File, InputFile};
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::operation::*;
use deskgate_protocol::service::{Endpoint, EndpointDevice};

use crate::file::Golden;
use crate::samples::*;

#[test]
fn records_are_written_and_read_as_ever() {
    let mut file = Golden::open("records");
    file.sample("Run, just accepted".to_owned(), young_run());
    file.sample("Run, with everything".to_owned(), old_run());
    file.sample("RunEvent".to_owned(), run_event());
    file.sample("Conversation".to_owned(), conversation());
    let busy = Conversation { state: ConversationState::Busy, active_run_id: Some(run_id()), ..conversation() };
    file.sample("Conversation, busy".to_owned(), busy);
    file.sample("ControlOperation, a stop".to_owned(), stop_operation());
    file.sample("ControlOperation, a completed reset".to_owned(), reset_operation());
    let failed = ControlOperation {
        state: OperationState::Failed,
        outcome: None,
        error: Some(OperationErrorCode::DeviceRemoved.error()),
        ..reset_operation()
    };
    file.sample("ControlOperation, a failed reset".to_owned(), failed);
    file.sample("Delivery".to_owned(), delivery());
    let delivered = Delivery {
        state: DeliveryState::Delivered,
        status_code: Some(204),
        error_code: None,
        next_attempt_at: None,
        finished_at: Some(moment()),
        ..delivery()
    };
    file.sample("Delivery, delivered".to_owned(), delivered);
    file.sample("Endpoint".to_owned(), endpoint());
    let never_seen = EndpointDevice { connected: false, last_seen_at: None };
    let schema = Some(output().schema);
    let typed = Endpoint { input_schema: schema.clone(), output_schema: schema, caller_schema: false, ..endpoint() };
    let takes_files = Endpoint { takes_files: true, ..endpoint() };
    file.sample("Endpoint, takes files".to_owned(), takes_files);
    file.sample("File".to_owned(), uploaded_file());
    file.sample("File, of a run".to_owned(), File { expires_at: None, ..uploaded_file() });
    file.sample("InputFile".to_owned(), input_file());
    file.sample("Artifact".to_owned(), artifact());
    file.sample("Endpoint, typed".to_owned(), typed);
    file.sample("Endpoint, never seen".to_owned(), Endpoint { device: never_seen, ..endpoint() });
    let identity = IdentityFile::sign(&signing_key(), "anna's laptop", moment());
    file.sample("IdentityFile".to_owned(), identity.clone());
    file.sample("Refused".to_owned(), refused());
    file.sample("Refused, in short".to_owned(), refused_in_short());
    file.sample("ManagementError".to_owned(), management_error());
    let text = file.text_of("IdentityFile");
    file.close();
    assert_eq!(IdentityFile::read(&text), Ok(identity), "the signature of the golden file holds");
}

fn uploaded_file() -> File {
    let InputFile { file_id, name, media_type, size, sha256 } = input_file();
    File { file_id, name, media_type, size, sha256, created_at: moment(), expires_at: Some(moment()) }
}

fn endpoint() -> Endpoint {
    Endpoint {
        id: endpoint_id(),
        name: "invoices".to_owned(),
        description: "Answers questions about invoices.".to_owned(),
        version: 3,
        input_schema: None,
        output_schema: None,
        caller_schema: true,
        takes_files: false,
        tool_name: "ask_invoices".to_owned(),
        read_only: false,
        device: EndpointDevice { connected: true, last_seen_at: Some(moment()) },
    }
}
