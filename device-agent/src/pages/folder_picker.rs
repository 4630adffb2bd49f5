//! The folder picker: a step of the service's form, which carries what was typed there along and gives it back.
//!
//! Each look is a form of its own, so the picker works without the script, which only shows it in a dialog.

use std::path::PathBuf;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::Shape;
use super::{PageError, Pages};
use crate::local::ListFolders;
use crate::services::{Folder, FolderListing};
use deskgate_program::visible;

/// The field of the form that the picker fills.
const FOLDER_FIELD: &str = "working_directory";
/// How the picker's own fields begin.
const OWN: &str = "picker_";

#[derive(Template)]
#[template(path = "folder-picker.html")]
struct FolderPicker {
    frame: Frame,
    /// Where its forms go: the address of the service's form.
    step: String,
    /// The fields of that form.
    carried: FormFields,
    listing: FolderListing,
    with_hidden: bool,
}

impl FolderPicker {
    /// The folder, as the field has it.
    fn path(&self) -> String {
        self.listing.path.display().to_string()
    }

    /// Why the folder cannot be used as it is.
    fn why_not(&self) -> Option<&str> {
        self.listing.unreadable.as_deref().or(self.listing.refusal.as_deref())
    }

    /// What the folder is, as shape and words.
    fn state(&self) -> (Shape, String) {
        let shape = if matches!(self.listing.state, Folder::There { .. }) { Shape::Good } else { Shape::Bad };
        (shape, self.listing.state.words(&self.listing.path))
    }
}

/// The step of the picker that a sent form asks for.
pub(super) enum PickerStep {
    /// Show the folders in a folder.
    Look(ListFolders),
    /// Back to the form, perhaps with another folder.
    Back,
}

/// The step that a form asks for, if it asks for one. A folder that was chosen is then in the form.
pub(super) fn step(fields: &mut FormFields) -> Option<PickerStep> {
    let within = fields.filled("picker_in").map(PathBuf::from);
    let hidden = fields.get("picker_hidden") == "yes";
    let look = |path: String| Some(PickerStep::Look(ListFolders { path, within: within.clone(), hidden }));
    if fields.get("then") == "browse" {
        return look(fields.get(FOLDER_FIELD).to_owned());
    }
    if let Some(folder) = asked(fields, "picker_use") {
        fields.0.retain(|(name, _)| name != FOLDER_FIELD);
        fields.0.push((FOLDER_FIELD.to_owned(), folder));
        return Some(PickerStep::Back);
    }
    if asked(fields, "picker_cancel").is_some() {
        return Some(PickerStep::Back);
    }
    let buttons = ["picker_open", "picker_go", "picker_hide"];
    match buttons.into_iter().find_map(|name| Some((name, asked(fields, name)?)))? {
        ("picker_open", name) => look(name),
        ("picker_hide", other) => {
            let path = fields.get("picker_in").to_owned();
            Some(PickerStep::Look(ListFolders { path, within: None, hidden: other == "yes" }))
        }
        _ => look(fields.get("picker_typed").to_owned()),
    }
}

/// The value of a button that was pressed.
fn asked(fields: &FormFields, button: &str) -> Option<String> {
    fields.0.iter().find(|(name, _)| name == button).map(|(_, value)| value.clone())
}

/// The picker, at a folder.
pub(super) async fn show(
    pages: &Pages,
    visitor: &Visitor,
    step: String,
    fields: &FormFields,
    look: ListFolders,
) -> Result<Response, PageError> {
    let frame = Frame::new(pages, visitor, Section::Services, "Choose a folder").await;
    let with_hidden = look.hidden;
    let listing = pages.handler().request(look).await?;
    let is_carried = |name: &str| name != "token" && name != "then" && !name.starts_with(OWN);
    let carried = FormFields(fields.0.iter().filter(|(name, _)| is_carried(name)).cloned().collect());
    Ok(super::html(StatusCode::OK, &FolderPicker { frame, step, carried, listing, with_hidden }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(fields: &[(&str, &str)]) -> FormFields {
        FormFields(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn looks_at(fields: &[(&str, &str)]) -> (String, Option<PathBuf>, bool) {
        match step(&mut sent(fields)) {
            Some(PickerStep::Look(ListFolders { path, within, hidden })) => (path, within, hidden),
            _ => panic!("it is no look: {fields:?}"),
        }
    }

    #[test]
    fn each_button_is_a_step_and_a_chosen_folder_is_in_the_form() {
        assert!(step(&mut sent(&[("name", "Orders"), ("then", "save")])).is_none());
        let begin = looks_at(&[("working_directory", "~/a"), ("then", "browse")]);
        assert_eq!(begin, ("~/a".to_owned(), None, false));
        let inner = looks_at(&[("picker_in", "/srv"), ("picker_hidden", "yes"), ("picker_open", "a b")]);
        assert_eq!(inner, ("a b".to_owned(), Some("/srv".into()), true));
        let typed = looks_at(&[("picker_in", "/srv"), ("picker_typed", "~"), ("picker_go", "")]);
        assert_eq!(typed, ("~".to_owned(), Some("/srv".into()), false));
        let other = looks_at(&[("picker_in", "/srv"), ("picker_hide", "yes")]);
        assert_eq!(other, ("/srv".to_owned(), None, true));
        let mut chosen = sent(&[("working_directory", "/old"), ("picker_in", "/srv"), ("picker_use", "/srv")]);
        assert!(matches!(step(&mut chosen), Some(PickerStep::Back)));
        assert_eq!(chosen.all("working_directory").collect::<Vec<_>>(), ["/srv"]);
        let mut left = sent(&[("working_directory", "/old"), ("picker_in", "/srv"), ("picker_cancel", "")]);
        assert!(matches!(step(&mut left), Some(PickerStep::Back)) && left.get("working_directory") == "/old");
    }
}
