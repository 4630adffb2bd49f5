//! The examples in `docs/`, executed as a reader would.

use crate::examples::Guides;
use crate::fixture::ContractFixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_in_the_guides_does_what_it_says() {
    let site = ContractFixture::open().await;
    let guides = Guides::read();
    guides.save_files(site.folder());
    for example in &guides.examples {
        let Some((program, arguments)) = example.save(site.folder()) else { continue };
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let printed = site.run(&program, &arguments).await;
        assert!(printed.contains(&example.prints), "{} prints no {:?}:\n{printed}", example.place, example.prints);
    }
    assert!(guides.examples.len() >= 29, "only {} examples were found", guides.examples.len());
}
