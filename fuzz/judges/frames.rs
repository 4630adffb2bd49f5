//! Frames: a frame that is read is written the same, no frame belongs to both directions, and an error repeats no
//! content.

use std::fmt::Debug;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_protocol::frame::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A word that no error may repeat.
const CANARY: &str = "canary";

/// Judges a text message as either half reads it.
pub fn judge(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = [same_again::<DeviceFrame>(text), same_again::<GatewayFrame>(text)];
    assert_ne!(read, [true, true], "a frame of both directions");
}

fn same_again<F: DeserializeOwned + Serialize + PartialEq + Debug>(text: &str) -> bool {
    let frame: F = match decode(text) {
        Ok(frame) => frame,
        Err(error) => {
            let said = format!("{error} {:?}", error.to_string());
            assert!(!said.contains(CANARY), "an error repeats what stands in a frame: {said}");
            return false;
        }
    };
    let written = encode(&frame).expect("what was read can be written");
    let again: F = decode(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(again, frame, "{written}");
    assert_eq!(encode(&again).expect("written before"), written);
    true
}
