//! The pages while there is no gateway.

use crate::fixture::PagesFixture;
use crate::mcp::{list, pinned_to};

#[tokio::test]
async fn a_page_that_needs_the_gateway_says_so_with_everything_that_stands_around_every_page() {
    let room = PagesFixture::new().await;
    for path in ["/runs", "/applications", "/conversations"] {
        let away = room.get(path).await;
        assert_eq!(away.status, 503, "{path}: {}", away.body);
        for part in ["<nav id=\"side\"", "The gateway cannot be reached", "data-passes", "href=\"/health\""] {
            assert!(away.body.contains(part), "{path}, {part}: {}", away.body);
        }
    }
    let missing = room.get("/no/such/page").await;
    assert!(missing.status == 404 && missing.body.contains("<nav id=\"side\""), "{}", missing.body);
    assert!(!missing.body.contains("data-passes"), "it will not come by itself");
}

#[tokio::test]
async fn what_is_on_this_computer_is_found_and_what_was_not_asked_is_said() {
    let room = PagesFixture::new().await;
    let draft_id = pinned_to(&room, &list("Adds a note.")).await;
    let whole = room.get("/search?q=tickets").await;
    assert_eq!((whole.status, whole.leads_to()), (303, format!("/services/{draft_id}").as_str()), "{}", whole.body);
    let part = room.get("/search?q=icke").await;
    assert!(part.status == 200 && part.body.contains(&format!("href=\"/services/{draft_id}\"")), "{}", part.body);
    assert!(part.body.contains("Only services and approvals were looked through"), "{}", part.body);
    let nothing = room.get("/search").await;
    assert!(nothing.status == 200 && nothing.body.contains("deskgate find TEXT"), "{}", nothing.body);
}
