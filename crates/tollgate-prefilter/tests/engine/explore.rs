//! Every order of a world's events.

use crate::{end::End, run::Run, world::World};

/// Carries out every order of the world's events, each on engines of its own.
pub(crate) fn explore(world: &World) {
    // By step: the event that is tried, and how many there are.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let (mut paths, mut events) = (0, Vec::new());
    loop {
        let mut run = Run::new(world);
        let mut steps = 0;
        loop {
            run.events(&mut events);
            if events.is_empty() {
                break;
            }
            if steps == path.len() {
                path.push((0, events.len()));
            }
            let (tried, of) = path[steps];
            assert_eq!(of, events.len(), "the same events have the same end");
            run.happen(events[tried]);
            steps += 1;
        }
        End::check_all(run);
        paths += 1;
        while path.pop_if(|(tried, of)| *tried + 1 == *of).is_some() {}
        match path.last_mut() {
            Some((tried, _)) => *tried += 1,
            None => break,
        }
    }
    let thread = std::thread::current();
    eprintln!("{}: {paths} paths", thread.name().unwrap_or_default());
}
